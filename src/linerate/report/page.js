// Draws the figures of a page. A figure holds an empty <svg> and, as JSON, what it shows
// (sections.hpp). A picture is drawn for the width that its figure has, and anew when that changes.
// So text has the same size on a phone and on a desk. Colours are classes of page.css.
'use strict';
(() => {

const FONT = 12;      // of axes and labels, pixels; page.css says so, too
const NARROW = 560;   // below this width names stand above their rows and axes have fewer ticks
const COLOURS = 8;
const MOST_MARKED = 24;  // points of a line; a longer one has no markers

// ---- Elements ----

// The page's own <svg> lends its namespace: no address stands in the page.
function add(parent, tag, attributes = {}, words = '') {
  const element = document.createElementNS(parent.namespaceURI, tag);
  for (const [key, value] of Object.entries(attributes))
    element.setAttribute(key, typeof value === 'number' ? +value.toFixed(2) : value);
  if (words) element.textContent = words;  // never markup
  return parent.appendChild(element);
}

const line = (svg, x1, y1, x2, y2, style) => add(svg, 'line', {x1, y1, x2, y2, class: style});
const path = (svg, d, style) => add(svg, 'path', {d, class: style});
const rect = (svg, x, y, width, height, style) =>
    add(svg, 'rect', {x, y, width, height, class: style});
const text = (svg, x, y, words, anchor, style = '') =>
    add(svg, 'text', {x, y, 'text-anchor': anchor, class: style}, words);
const explain = (element, words) => add(element, 'title', {}, words);

// Six outlines, told apart without colour.
const OUTLINES = [
  'm-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z', 'm-3.2-3.2h6.4v6.4h-6.4z', 'm0-4.2l4.2 7.4h-8.4z',
  'm0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5z', 'm0 4.2l4.2-7.4h-8.4z',
  'm-1.3-4.2h2.6v2.9h2.9v2.6h-2.9v2.9h-2.6v-2.9h-2.9v-2.6h2.9z'];
const marker = (svg, x, y, shape, style) =>
    path(svg, `M${x.toFixed(1)} ${y.toFixed(1)}${OUTLINES[shape % OUTLINES.length]}`, style);

// ---- Words and numbers ----

const ruler = document.createElement('canvas').getContext('2d');
function widthOf(words, bold = false) {
  ruler.font = `${bold ? 650 : 400} ${FONT}px ${getComputedStyle(document.body).fontFamily}`;
  // Figures of one width are a little wider than others.
  return ruler.measureText(words).width * 1.02;
}
const widest = (all, bold) =>
    all.reduce((width, words) => Math.max(width, widthOf(words, bold)), 0);

// The longest beginning that fits, with an ellipsis; nothing if that is not even three letters.
function shortened(words, width) {
  if (widthOf(words) <= width) return words;
  const letters = Array.from(words);
  while (letters.length && widthOf(letters.join('') + '…') > width) letters.pop();
  return letters.length < 3 ? '' : letters.join('') + '…';
}

const number = (value, digits = 6) => String(+value.toPrecision(digits));
const timeUnit = (seconds) => seconds < 1e-3 ? ['us', 1e-6] : seconds < 1 ? ['ms', 1e-3] : ['s', 1];

// ---- Axes ----

function scale(low, high, from, to, logarithmic = false) {
  const of = logarithmic ? Math.log : (value) => value;
  return (value) => high > low ? from + (of(value) - of(low)) / (of(high) - of(low)) * (to - from) :
                                 (from + to) / 2;
}

const SLACK = 1e-9;  // a tick that rounding put just outside still counts

// Multiples of 1, 2 or 5 x 10^k, at most `most` of them.
function linearTicks(low, high, most) {
  if (!(high > low)) return [low];
  const power = 10 ** Math.floor(Math.log10((high - low) / most));
  const count = (step) => Math.floor(high / step + SLACK) - Math.ceil(low / step - SLACK) + 1;
  const step =
      [1, 2, 5, 10].map((digit) => digit * power).find((s) => count(s) <= most) ?? 10 * power;
  return Array.from({length: count(step)}, (_, i) => (Math.ceil(low / step - SLACK) + i) * step);
}

// 1, 2 and 5 x 10^k; the powers of ten alone, or every second, third ... of those, if that is too
// many. A range that holds fewer than two is marked as a linear one.
function logTicks(low, high, most) {
  const inside = (digits) => {
    const ticks = [];
    for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); ++k)
      ticks.push(...digits.map((digit) => digit * 10 ** k));
    return ticks.filter((tick) => tick >= low * (1 - SLACK) && tick <= high * (1 + SLACK));
  };
  let ticks = inside([1, 2, 5]);
  if (ticks.length > most) ticks = inside([1]);
  const stride = Math.ceil(ticks.length / most);
  ticks = ticks.filter((_, i) => i % stride === 0);
  return high > low && ticks.length > 1 ? ticks : linearTicks(low, high, most);
}

// Grid lines and their numbers below a horizontal axis; a number that would touch the one before it
// is left out.
function horizontalAxis(svg, x, ticks, top, bottom, left, width, label) {
  let free = 0;
  for (const tick of ticks) {
    const half = widthOf(number(tick)) / 2, at = Math.min(Math.max(x(tick), half), width - half);
    line(svg, x(tick), top, x(tick), bottom, 'grid');
    if (at - half < free) continue;
    text(svg, at, bottom + 16, number(tick), 'middle', 'tick');
    free = at + half + 6;
  }
  text(svg, (left + width) / 2, bottom + 36, label, 'middle', 'label');
}

// ---- Lines with the bands of their intervals: points are [x, y or null for a gap, low, high] ----

const isMarked = (series) => series.points.length <= MOST_MARKED;
// A ninth line is dashed.
const lineStyle = (i, role) => `c${i % COLOURS} d${Math.floor(i / COLOURS) % 4} ${role}`;

// Neighbours for which `has` holds.
function stretches(points, has) {
  const found = [[]];
  for (const point of points) has(point) ? found.at(-1).push(point) : found.push([]);
  return found.filter((stretch) => stretch.length);
}

function drawLines(svg, chart, width) {
  const height = width < NARROW ? 320 : 400, top = 30, bottom = height - 48, right = width - 12;
  const known = ([, y]) => y !== null, bounded = (point) => point.length === 4 && known(point);
  const points = chart.series.flatMap((s) => s.points).filter(known);
  const extent = (values) =>
      [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
  let [low, high] = extent([...points.flatMap(([, ...y]) => y), ...chart.y_range]);
  if (low === high) low -= 0.5, high += 0.5;
  const yTicks = linearTicks(low, high, 6), left = widest(yTicks.map((t) => number(t))) + 12;
  const [first, last] = extent(points.map(([x]) => x));
  const x = scale(first, last, left + 8, right - 8, chart.log_x), y = scale(low, high, bottom, top);
  const joined = (corners) =>
      'M' + corners.map(([a, b]) => `${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join('L');

  for (const tick of yTicks) {
    line(svg, left, y(tick), right, y(tick), 'grid');
    text(svg, left - 8, y(tick) + 4, number(tick), 'end', 'tick');
  }
  const most = width < NARROW ? 6 : 10;
  horizontalAxis(
      svg, x, (chart.log_x ? logTicks : linearTicks)(first, last, most), bottom, bottom + 4, left,
      width, chart.x_label);
  line(svg, left, bottom, right, bottom, 'axis');
  text(svg, 0, 14, chart.y_label, 'start', 'label');

  chart.series.forEach((series, i) => {
    for (const band of stretches(series.points, bounded)) {
      const back = [...band].reverse();
      if (band.length > 1)
        path(svg, joined([...band.map(([a, , , b]) => [a, b]),
                          ...back.map(([a, , b]) => [a, b])]) + 'z', lineStyle(i, 'band'));
      else
        line(svg, x(band[0][0]), y(band[0][2]), x(band[0][0]), y(band[0][3]),
             lineStyle(i, 'whisker'));
    }
  });
  chart.series.forEach((series, i) => {
    for (const stretch of stretches(series.points, known))
      if (stretch.length > 1) path(svg, joined(stretch), lineStyle(i, 'line'));
    for (const point of isMarked(series) ? series.points.filter(known) : []) {
      const interval = bounded(point) ?
          `, interval ${number(point[2], 4)} to ${number(point[3], 4)}` : '';
      explain(marker(svg, x(point[0]), y(point[1]), i, lineStyle(i, 'mark')),
              `${series.name}: ${number(point[1], 4)} at ${number(point[0])}${interval}`);
    }
  });
  return height;
}

const keysOfLines = (chart) => chart.series.map((series, i) => [series.name, (key) => {
  path(key, 'M0 6H28', lineStyle(i, 'line'));
  if (isMarked(series)) marker(key, 14, 6, i, lineStyle(i, 'mark'));
}]);

// ---- Rows: a time a name on an axis from zero, as a dot with its interval or as its parts ----

function drawRows(svg, chart, width) {
  const narrow = width < NARROW, height = narrow ? 42 : 26;
  const top = 8, bottom = top + height * chart.rows.length;
  const highest = chart.rows.reduce(
                      (most, row) => Math.max(
                          most, row.value_s, row.high_s ?? 0,
                          row.parts_s.reduce((sum, part) => sum + Math.max(0, part), 0)),
                      0) ||
      1;
  const nameRoom =
      narrow ? 0 : Math.min(widest(chart.rows.map((row) => row.name), true), width * 0.45);
  const left = narrow ? 4 : nameRoom + 12,
        right = width - widest(chart.rows.map((row) => row.text)) - 16;
  const [unit, seconds] = timeUnit(highest), x = scale(0, highest, left, right);
  horizontalAxis(
      svg, (tick) => x(tick * seconds), linearTicks(0, highest / seconds, narrow ? 4 : 8), 4,
      bottom, left, width, `${chart.label}, ${unit}`);
  chart.rows.forEach((row, i) => {
    const y = top + height * i + (narrow ? 28 : 13), colour = row.emphasised ? 'c5' : 'c0';
    const name = shortened(row.name, narrow ? width - 8 : nameRoom);
    text(
        svg, narrow ? 0 : left - 10, narrow ? y - 14 : y + 4, name, narrow ? 'start' : 'end',
        row.emphasised ? 'strong' : '');
    text(svg, right + 10, y + 4, row.text, 'start', 'tick');
    if (row.parts_s.length === 0) {
      if (row.high_s !== undefined)
        line(svg, x(Math.max(0, row.low_s)), y, x(row.high_s), y, `${colour} whisker`);
      explain(
          marker(svg, x(row.value_s), y, row.emphasised ? 3 : 0, `${colour} mark`),
          `${row.name}: ${row.text}`);
    }
    let begin = 0;
    row.parts_s.forEach((part, p) => {
      if (!(part > 0)) return;
      explain(
          rect(svg, x(begin), y - 8, x(begin + part) - x(begin), 16, `c${p % COLOURS} bar edged`),
          `${row.name}, ${chart.parts[p]}: ${number(part / seconds, 3)} ${unit}`);
      begin += part;
    });
  });
  return bottom + 44;
}

const swatch = (style) => (key) => rect(key, 1, 1, 26, 10, style);

const keysOfRows = (chart) =>
    chart.parts.map((name, p) => [name, swatch(`c${p % COLOURS} bar edged`), p])
        .filter(([, , p]) => chart.rows.some((row) => row.parts_s[p] > 0));

// ---- The best choice in each cell of a grid: [choice or -1, tied with another?, its value] ----

const CELL = 46;  // height
const letter = (choice) =>
    String.fromCharCode(65 + choice % 26) + (choice < 26 ? '' : Math.floor(choice / 26) + 1);

function drawCell(svg, map, [choice, tied, value], x, y, width, where) {
  const middle = x + width / 2;
  if (choice < 0) {
    explain(rect(svg, x + 1, y + 1, width - 2, CELL - 2, 'track'), `${where}: undefined`);
    text(svg, middle, y + CELL / 2 + 4, '–', 'middle', 'tick');
    return;
  }
  const colour = `c${choice % COLOURS}`, name = map.choices[choice],
        short = (tied ? '≈ ' : '') + letter(choice);
  explain(rect(svg, x + 1, y + 1, width - 2, CELL - 2, `${colour} cell`),
          `${where}: ${name}${tied ? ' (not told apart from others)' : ''}, ${value}`);
  rect(svg, x + 1, y + 1, 4, CELL - 2, `${colour} mark`);
  const full = `${short} ${name}`;
  text(
      svg, middle + 2, y + 20, widthOf(full, true) <= width - 14 ? full : short, 'middle',
      'strong');
  if (widthOf(value) <= width - 8) text(svg, middle + 2, y + 36, value, 'middle', 'in');
}

// A narrow picture swaps rows and columns if that makes wider cells.
function turned(map) {
  const cells =
      map.columns.flatMap((_, c) => map.rows.map((_, r) => map.cells[r * map.columns.length + c]));
  return {
    ...map,
    cells,
    columns: map.rows,
    rows: map.columns,
    column_label: map.row_label,
    row_label: map.column_label
  };
}

function drawMap(svg, given, width) {
  const map = width < NARROW && given.columns.length > given.rows.length ? turned(given) : given;
  const top = 44, left = widest(map.rows) + 10, cell = (width - left) / map.columns.length;
  text(svg, 0, 14, `Down: ${map.row_label}. Across: ${map.column_label}.`, 'start', 'label');
  let free = 0;
  map.columns.forEach((column, c) => {
    const middle = left + cell * (c + 0.5), half = widthOf(column) / 2;
    if (middle - half < free) return;
    text(svg, middle, top - 8, column, 'middle', 'tick');
    free = middle + half + 4;
  });
  map.rows.forEach((row, r) => {
    text(svg, left - 8, top + CELL * (r + 0.5) + 4, row, 'end', 'tick');
    map.columns.forEach(
        (column, c) => drawCell(
            svg, map, map.cells[r * map.columns.length + c], left + cell * c, top + CELL * r, cell,
            `${column}, ${row}`));
  });
  return top + CELL * map.rows.length + 6;
}

function keysOfMap(map) {
  const winners = map.choices.map((name, i) => [name, i])
                      .filter(([, i]) => map.cells.some(([choice]) => choice === i));
  const keys = winners.map(([name, i]) => [name, (key) => {
    rect(key, 1, 0, 26, 12, `c${i % COLOURS} cell`);
    rect(key, 1, 0, 4, 12, `c${i % COLOURS} mark`);
  }, letter(i)]);
  const tied = ['not told apart from the next best: their intervals overlap', null, '≈'];
  return map.cells.some(([, is_tied]) => is_tied) ? [...keys, tied] : keys;
}

// ---- Steps over time: a row a rank and resource, lanes of bars ----

// A bar is [kind, start, end, label, events]. Every kind has its colour, so that pages can be
// compared. Kinds that share one never meet in a row.
const KINDS = {
  'forward': 'c0', 'backward': 'c6', 'encode': 'c3', 'decode': 'c4', 'all-reduce': 'c5',
  'reduce-scatter': 'c7', 'all-gather': 'c2', 'all-gather-v': 'c2', 'all-to-all': 'c1',
  'broadcast': 'n', 'factor': 'c4', 'inverse': 'c3', 'precondition': 'c2', 'update': 'c1',
  'host': 'n', 'compute': 'c0', 'copy': 'n'
};

const LANE = 20, TITLE = 26, ROW_GAP = 4, RANK_GAP = 8;

// A name that fits stands in its bar; a run of bars of one kind whose names do not fit carries the
// kind once. The rest is left to the tooltips: never a cut name.
function labelLane(svg, placed, baseline) {
  const fits = (words, width) => words && widthOf(words) <= width - 6;
  const write = (from, to, words) => text(svg, (from + to) / 2, baseline, words, 'middle', 'in');
  const named = ({label, from, to}) => fits(label, to - from);
  for (let i = 0; i < placed.length;) {
    const first = placed[i++];
    if (named(first)) {
      write(first.from, first.to, first.label);
      continue;
    }
    let {to} = first;
    while (i < placed.length && placed[i].kind === first.kind && placed[i].from - to < 3 &&
           !named(placed[i]))
      to = placed[i++].to;
    if (fits(first.kind, to - first.from)) write(first.from, to, first.kind);
  }
}

function drawTimeline(svg, chart, width) {
  const narrow = width < NARROW,
        longest = chart.groups.reduce((most, group) => Math.max(most, group.length_s), 0);
  const [unit, seconds] = timeUnit(longest), inUnit = (s) => `${number(s / seconds, 4)} ${unit}`;
  const severalRanks = (group) => group.rows.some((row) => row.rank !== group.rows[0].rank);
  const nameOf = (group, row) =>
      severalRanks(group) ? `${narrow ? '' : 'rank '}${row.rank} ${row.resource}` : row.resource;
  const left =
      widest(chart.groups.flatMap((group) => group.rows.map((row) => nameOf(group, row)))) + 8;
  const right = width - 10, x = scale(0, longest, left, right);
  const grid = add(svg, 'g');  // below the bars; its height is known after them
  let y = 0;
  for (const group of chart.groups) {
    text(svg, 0, y + 14, shortened(group.title, width - 4), 'start', 'strong');
    y += TITLE;
    const top = y;
    group.rows.forEach((row, i) => {
      if (i > 0 && row.rank !== group.rows[i - 1].rank) y += RANK_GAP;
      text(svg, left - 8, y + LANE / 2 + 4, nameOf(group, row), 'end', 'tick');
      rect(svg, left, y, right - left, LANE * row.lanes.length, 'track');
      for (const lane of row.lanes) {
        const placed = lane.map(([kind, start, end, label, events]) => {
          const from = x(start), to = Math.max(x(end), from + 0.4);
          explain(
              rect(
                  svg, from, y + 1, to - from, LANE - 2,
                  `${KINDS[kind]} bar${to - from > 3 ? ' edged' : ''}`),
              `${events > 1 ? `${events} events of kind ${kind}` : `${label} (${kind})`}: ${
                  inUnit(end - start)} from ${inUnit(start)}`);
          return {kind, label, from, to};
        });
        labelLane(svg, placed, y + LANE / 2 + 4);
        y += LANE;
      }
      y += ROW_GAP;
    });
    line(svg, x(group.length_s), top - 4, x(group.length_s), y + 4, 'end');
    y += 12;
  }
  horizontalAxis(
      grid, (tick) => x(tick * seconds), linearTicks(0, longest / seconds, narrow ? 5 : 10), 4, y,
      left, width, `Time since the start of the step, ${unit}`);
  return y + 44;
}

function keysOfTimeline(chart) {
  const lanes = chart.groups.flatMap((group) => group.rows).flatMap((row) => row.lanes);
  const drawn = new Set(lanes.flat().map(([kind]) => kind));
  return Object.keys(KINDS).filter((kind) => drawn.has(kind))
      .map((kind) => [kind, swatch(`${KINDS[kind]} bar edged`)]);
}

// ---- Figures ----

const CHARTS = {
  lines: [drawLines, keysOfLines],
  rows: [drawRows, keysOfRows],
  map: [drawMap, keysOfMap],
  timeline: [drawTimeline, keysOfTimeline]
};

// Name and mark of all that a chart tells apart, as a list above it; a bold letter or sign stands
// before its name.
function addLegend(figure, svg, keys) {
  if (!keys.length) return;
  const list = figure.insertBefore(document.createElement('ul'), svg);
  list.className = 'legend';
  for (const [name, mark, sign] of keys) {
    const item = list.appendChild(document.createElement('li'));
    if (mark)
      mark(item.appendChild(
          add(svg, 'svg', {class: 'key', viewBox: '0 0 28 12', 'aria-hidden': 'true'})));
    if (typeof sign === 'string')
      item.appendChild(document.createElement('b')).textContent = sign + ' ';
    item.appendChild(document.createElement('span')).textContent = name;
  }
}

const pictures = [...document.querySelectorAll('figure > script')].map((script) => {
  const chart = JSON.parse(script.textContent), figure = script.parentNode,
        svg = figure.querySelector('svg');
  const [draw, keys] = CHARTS[chart.kind];
  addLegend(figure, svg, keys(chart));
  let drawn = 0;
  return () => {
    const width = figure.clientWidth || 840;
    if (width === drawn) return;
    drawn = width;
    svg.replaceChildren();
    svg.setAttribute('viewBox', `0 0 ${width} ${Math.ceil(draw(svg, chart, width))}`);
  };
});
const drawAll = () => pictures.forEach((draw) => draw());
drawAll();
addEventListener('resize', drawAll);
// A reader of paper cannot unfold the numbers.
addEventListener('beforeprint', () => document.querySelectorAll('details').forEach((d) => {
  d.open = true;
}));

})();
