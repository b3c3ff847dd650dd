// What the page's script draws, in a document that is a stand-in of a few lines:
//   node page_script_test.js PAGE.html
// Takes the script from the page and gives it charts; then draws the page's own figures. It needs
// no browser and no package.
'use strict';
const assert = require('node:assert');
const {readFileSync} = require('node:fs');
const vm = require('node:vm');

const page = readFileSync(process.argv[2], 'utf8');
const script = page.match(/<script>([^]*?)<\/script>/)[1];

class Element {
  constructor(tag) {
    Object.assign(this, {tag, attributes: {}, children: [], namespaceURI: 'svg', own: ''});
  }
  get textContent() { return this.own + this.children.map((child) => child.textContent).join(''); }
  set textContent(words) { this.own = words; this.children = []; }
  get innerHTML() { throw new Error('markup'); }
  set innerHTML(_) { throw new Error('markup'); }
  setAttribute(key, value) { this.attributes[key] = String(value); }
  appendChild(child) {
    if (child.parentNode)
      child.parentNode.children.splice(child.parentNode.children.indexOf(child), 1);
    child.parentNode = this;
    this.children.push(child);
    return child;
  }
  insertBefore(child) { return this.appendChild(child); }
  replaceChildren() { this.children = []; }
  querySelector(tag) { return this.children.find((child) => child.tag === tag); }
  all(tag) {
    return this.children.flatMap(
        (child) => [...(child.tag === tag ? [child] : []), ...child.all(tag)]);
  }
}

// A letter is 7 pixels wide, a kanji 12.
const measureText = (words) =>
    ({width: Array.from(words).reduce((sum, c) => sum + (c > '\u2e80' ? 12 : 7), 0)});

// Draws charts given as JSON texts; `resize` changes the width.
function run(charts, width) {
  const handlers = {}, fold = {open: false};
  const figures = charts.map((json) => {
    const figure = new Element('figure');
    figure.clientWidth = width;
    figure.appendChild(new Element('svg'));
    figure.appendChild(new Element('script')).textContent = json;
    return figure;
  });
  vm.runInNewContext(script, {
    document: {
      createElementNS: (_, tag) => new Element(tag),
      createElement: (tag) =>
          tag === 'canvas' ? {getContext: () => ({measureText})} : new Element(tag),
      querySelectorAll: (what) =>
          what === 'details' ? [fold] : figures.map((figure) => figure.querySelector('script'))
    },
    getComputedStyle: () => ({fontFamily: 'sans-serif'}),
    addEventListener: (event, handler) => {
      handlers[event] = handler;
    }
  });
  return {figures, handlers, fold};
}

function draw(chart, width = 840) {
  const [figure] = run([JSON.stringify(chart)], width).figures;
  const svg = figure.querySelector('svg'), legend = figure.querySelector('ul');
  const titled = svg.all('title').map((title) => title.textContent);
  const texts = svg.all('text').map((text) => text.textContent);
  const classes = [...svg.all('path'), ...svg.all('line'), ...svg.all('rect')].map(
      (mark) => mark.attributes.class);
  for (const element of ['line', 'rect', 'path', 'text'].flatMap((tag) => svg.all(tag)))
    for (const value of Object.values(element.attributes))
      assert(!/NaN|Infinity|undefined/.test(value), value);
  return {svg, titled, texts, classes, count: (style) => classes.filter((c) => c === style).length,
          legend: legend ? legend.children.map((item) => item.textContent) : []};
}

// No two texts on one line of the picture share a place.
function checkTextsAreApart(svg) {
  const ends = svg.all('text').map(({attributes: a, textContent}) => {
    const {width} = measureText(textContent),
          from = +a.x - width * {start: 0, middle: 0.5, end: 1}[a['text-anchor']];
    return {y: a.y, from, to: from + width, textContent};
  });
  for (const a of ends)
    for (const b of ends)
      assert(
          a === b || a.y !== b.y || a.to <= b.from || b.to <= a.from,
          `${a.textContent} / ${b.textContent}`);
}

const lines = (series, more = {}, width) => draw(
    {kind: 'lines', x_label: 'x', y_label: 'y', log_x: true, y_range: [],
     series: series.map((points, i) => ({name: `s${i}`, points})), ...more}, width);
const rows = (list, parts = [], width) => draw(
    {kind: 'rows', label: 'Step', parts,
     rows: list.map((row) => ({value_s: 0.1, text: '', emphasised: false, parts_s: [], ...row}))},
    width);
const map = (chart, width) =>
    draw({kind: 'map', column_label: 'c', row_label: 'r', choices: ['x'], ...chart}, width);
const timeline = (groups, width) => draw({kind: 'timeline', groups}, width);
const group = (rows, title = 't', length_s = 1) => ({title, length_s, rows});
const row = (lanes, rank = 0, resource = 'compute') => ({rank, resource, lanes});
const bars = (...lane) => timeline([group([row([lane])])]);

// "-": not these words.
function shows(drawn, ...words) {
  for (const word of words)
    assert.equal(drawn.texts.includes(word.replace(/^- /, '')), !word.startsWith('- '), word);
}
function counts(drawn, expected) {
  for (const [style, times] of Object.entries(expected))
    assert.equal(drawn.count(style), times, style);
}
const xs = (drawn) => drawn.svg.all('path').filter((p) => p.attributes.class.endsWith('mark'))
    .map((p) => +p.attributes.d.match(/^M(\S+)/)[1]);

// Points of a line, and how often each style is in its picture.
const POINTS = {
  'a gap in the data is a gap in the line':
      [[[1, 1], [10, 2], [20, null], [30, null]], {'c0 d0 line': 1, 'c0 d0 mark': 2}],
  'points around a gap are not joined':
      [[[1, 1], [10, 2], [20, null], [30, 2], [40, 1]], {'c0 d0 line': 2}],
  'intervals of neighbours are one band':
      [[[1, 1, 0.5, 2], [10, 2, 1, 3], [20, 2], [30, 2, 1, 3]],
       {'c0 d0 band': 1, 'c0 d0 whisker': 1}],
  'a line of few points has markers':
      [Array.from({length: 24}, (_, i) => [i + 1, i]), {'c0 d0 mark': 24}],
  'a line of many points has none':
      [Array.from({length: 25}, (_, i) => [i + 1, i]), {'c0 d0 mark': 0, 'c0 d0 line': 1}],
};

const TESTS = {
  ...Object.fromEntries(Object.entries(POINTS).map(
      ([claim, [points, expected]]) => [claim, () => counts(lines([points]), expected)])),
  'one point is a marker without a line, with its interval'() {
    const drawn = lines([[[10, 0.5, 0.4, 0.6]]], {}, 358);
    counts(drawn, {'c0 d0 line': 0, 'c0 d0 mark': 1, 'c0 d0 whisker': 1});
    assert.deepEqual(drawn.titled, ['s0: 0.5 at 10, interval 0.4 to 0.6']);
  },
  'the ninth line differs from the first'() {
    counts(lines(Array.from({length: 9}, (_, i) => [[1, i], [2, i]])),
           {'c0 d0 line': 1, 'c0 d1 line': 1});
  },
  'names are words, not markup'() {
    const drawn = lines([], {series: [{name: '<script>', points: [[1, 1]]}]});
    assert.deepEqual(drawn.legend, ['<script>']);
    assert.deepEqual(drawn.titled, ['<script>: 1 at 1']);
  },
  'a logarithmic axis has the geometric mean in the middle and round ticks, few enough'() {
    const points = [[[1, 0], [10, 0.5], [100, 1]]], wide = lines(points), [a, b, c] = xs(wide);
    assert(Math.abs(b - (a + c) / 2) < 0.2);
    shows(wide, '1', '2', '5', '10', '20', '50', '100', '0', '0.2', '0.4', '0.6', '0.8', '- -0');
    shows(lines(points, {}, 358), '10', '- 20');
  },
  'a dozen decades have a few ticks'() {
    const {svg} = lines([[[1, 1], [1e12, 2]]], {}, 358);
    assert(svg.all('line').filter((l) => l.attributes.x1 === l.attributes.x2).length <= 6);
  },
  'numbers of an axis stand apart'() {
    checkTextsAreApart(lines([Array.from({length: 10}, (_, i) => [123456 + i, 1e5 * i])],
                             {log_x: false}, 200).svg);
  },
  'a line without slope has an axis all the same'() { shows(lines([[[1, 7], [2, 7]]]), '7.2'); },
  'the range asked for is shown'() {
    shows(lines([[[1, 0.5], [2, 0.6]]], {y_range: [0, 1]}), '0', '1');
  },
  'dots have intervals, and the emphasised one another shape, colour and weight'() {
    const a = {name: 'a', text: '100 ms', low_s: 0.09, high_s: 0.2};
    const drawn = rows([a, {...a, name: 'b', emphasised: true}]);
    counts(drawn, {'c0 mark': 1, 'c5 mark': 1, 'c0 whisker': 1, 'c5 whisker': 1});
    shows(drawn, 'Step, ms', '200', '100 ms');
    assert.deepEqual(drawn.titled, ['a: 100 ms', 'b: 100 ms']);
    assert.equal(
        drawn.svg.all('text').find((t) => t.textContent === 'b').attributes.class, 'strong');
    assert.deepEqual(drawn.legend, []);
    const outlines = drawn.svg.all('path').map((p) => p.attributes.d.replace(/^M\S+ [\d.]+/, ''));
    assert.notEqual(outlines[0], outlines[1]);
  },
  'an interval that reaches below zero begins there'() {
    const marks = rows([{name: 'a', low_s: -0.1, high_s: 0.2}]).svg.all('line');
    const [zero, whisker] = ['grid', 'whisker'].map(
        (style) => marks.find((l) => l.attributes.class.endsWith(style)).attributes.x1);
    assert.equal(whisker, zero);
  },
  'parts stand one after the other; what takes no time has no bar and no entry in the legend'() {
    const drawn = rows([{name: 'kfac', value_s: 2, parts_s: [0.8, -0.1, 0.4, 0]}],
                       ['forward', 'gradients', 'inverses', 'broadcasts']);
    assert.deepEqual(drawn.titled, ['kfac, forward: 0.8 s', 'kfac, inverses: 0.4 s']);
    assert.deepEqual(drawn.legend, ['forward', 'inverses']);
    const [first, second] = drawn.svg.all('rect').map(({attributes: a}) => [+a.x, +a.width]);
    assert(
        Math.abs(first[0] + first[1] - second[0]) < 0.02 &&
        Math.abs(first[1] / second[1] - 2) < 0.01);
  },
  'a name is cut between letters of several bytes, and only if three fit'() {
    const cut = (name, width) => rows([{name, value_s: 1}], [], width + 8);
    shows(cut('線速線速線速', 60), '線速線速…');
    shows(cut('abc', 60), 'abc');
    shows(cut('😀😀😀😀😀😀😀😀😀', 60), '😀😀😀😀…');
    assert(!cut('abcdefgh', 20).texts.some((words) => words.includes('…')));
  },
  'every cell of a map is readable without colour'() {
    const long = 'a strategy with a name that is longer than any cell of a phone';
    const drawn = map(
        {column_label: 'bandwidth', row_label: 'ranks', columns: ['1', '10'], rows: ['16'],
         choices: ['ddp', long, 'never'], cells: [[0, false, '5 ms'], [1, true, '4 ms']]},
        358);
    // Turned: wider cells.
    shows(drawn, 'A ddp', '≈ B', '4 ms', 'Down: bandwidth. Across: ranks.');
    assert.deepEqual(
        drawn.legend,
        ['A ddp', `B ${long}`, '≈ not told apart from the next best: their intervals overlap']);
    assert.deepEqual(
        drawn.titled, ['16, 1: ddp, 5 ms', `16, 10: ${long} (not told apart from others), 4 ms`]);
  },
  'what does not fit a map is left out'() {
    const drawn = map(
        {rows: ['1', '2', '3', '4', '5', '6'],
         columns: Array.from({length: 6}, (_, i) => `1234567.${i}`),
         cells: Array.from({length: 36}, () => [0, false, '12.345678 ms'])},
        320);
    shows(drawn, '- 12.345678 ms', '1234567.0', '- 1234567.1');
    checkTextsAreApart(drawn.svg);
  },
  'a cell keeps its place in a map that is turned'() {
    const chart = {columns: ['1', '2', '3'], rows: ['8', '9'],
                   cells: [...'abcdef'].map((value) => [0, false, value])};
    const titles = (width) => map(chart, width).titled.map((t) => t.replace(': x', ''));
    assert.equal(titles(840).join('; '), '1, 8, a; 2, 8, b; 3, 8, c; 1, 9, d; 2, 9, e; 3, 9, f');
    assert.equal(titles(358).join('; '), '8, 1, a; 9, 1, d; 8, 2, b; 9, 2, e; 8, 3, c; 9, 3, f');
  },
  'an undefined cell is a dash'() {
    const drawn = map({columns: ['1'], rows: ['16'], choices: ['ddp'], cells: [[-1, false, '']]});
    shows(drawn, '–');
    assert.deepEqual(drawn.legend, []);
  },
  'a name stands in a bar that is wide enough, else its kind, else the tooltip alone says it'() {
    const long = 'a name that is far too long for its bar';
    const drawn = timeline([group([row([[
      ['forward', 0, 0.05, '<fc>', 1], ['backward', 0.05, 0.07, long, 1],
      ['update', 0.095, 0.1, '', 7]
    ]])], 'trained: 100 ms', 0.1)]);
    shows(drawn, '<fc>', 'backward', `- ${long}`, '- update',
          'Time since the start of the step, ms', 'compute');
    assert.deepEqual(drawn.titled, [
      '<fc> (forward): 50 ms from 0 ms', `${long} (backward): 20 ms from 50 ms`,
      '7 events of kind update: 5 ms from 95 ms'
    ]);
    assert.deepEqual(drawn.legend, ['forward', 'backward', 'update']);
    counts(drawn, {'c0 bar edged': 1});
  },
  'neighbours of one kind whose names do not fit bear the kind once'() {
    const {texts} = bars(...Array.from(
        {length: 20},
        (_, i) => ['forward', i / 20, (i + 1) / 20, 'a name longer than its bar', 1]));
    assert.equal(texts.filter((words) => words === 'forward').length, 1);
  },
  'a run of unnamed bars ends with its kind and before a bar that bears its name'() {
    const long = 'x'.repeat(50);
    const {texts} = bars(
        ['forward', 0, 0.2, long, 1], ['backward', 0.2, 0.4, long, 1],
        ['backward', 0.4, 0.6, 'fc', 1], ['backward', 0.6, 0.8, long, 1]);
    assert.deepEqual(texts.filter((words) => ['forward', 'backward', 'fc'].includes(words)),
                     ['forward', 'backward', 'fc', 'backward']);
  },
  'a bar of no length is seen, lanes lie below each other, ranks further apart than resources'() {
    const bar = ['forward', 0.5, 0.5, 'x', 1], of = (...place) => row([[bar], [bar]], ...place);
    const {svg} = timeline([group([of(0), of(0, 'network'), of(1)])]);
    const drawn =
        svg.all('rect').filter((r) => r.attributes.class.includes('bar')).map((r) => r.attributes);
    for (const {width} of drawn) assert(+width >= 0.4);
    const steps = drawn.slice(1).map((b, i) => b.y - drawn[i].y);
    assert(
        steps.every((step) => step >= 18) && steps[3] > steps[1] && steps[1] > steps[0],
        String(steps));
  },
  'rows bear their rank where there are several, below each group its own title'() {
    const of = (rank) => row([[['forward', 0, 1, 'x', 1]]], rank);
    const groups = [group([of(0), of(1)], 'predicted'), group([of(0)], 'trained', 2)];
    const drawn = timeline(groups);
    const order = ['predicted', 'rank 0 compute', 'rank 1 compute', 'trained', 'compute'];
    assert.deepEqual(drawn.texts.filter((words) => order.includes(words)), order);
    counts(drawn, {end: 2});
    shows(timeline(groups, 358), '1 compute');
  },
  'a picture is drawn anew for another width alone, its legend once'() {
    const {figures: [figure], handlers} = run(
        ['{"kind": "lines", "y_range": [], "series": [{"name": "s", "points": [[1, 1]]}]}'], 840);
    const svg = figure.querySelector('svg'), first = svg.children[0];
    handlers.resize();
    assert.equal(svg.children[0], first);
    figure.clientWidth = 358;
    handlers.resize();
    assert.notEqual(svg.children[0], first);
    assert.equal(svg.attributes.viewBox, '0 0 358 320');
    assert.equal(figure.all('ul').length, 1);
  },
  'paper shows the numbers'() {
    const {handlers, fold} = run([], 840);
    handlers.beforeprint();
    assert(fold.open);
  },
  'the figures of the page are drawn at every width'() {
    const charts = [...page.matchAll(/<script type="application\/json">([^]*?)<\/script>/g)].map(
        (found) => found[1]);
    assert.equal(charts.length, (page.match(/<svg role="img"/g) || []).length);
    assert(charts.length > 8);
    for (const width of [320, 358, 559, 560, 840])
      for (const chart of charts) {
        const drawn = draw(JSON.parse(chart), width);
        assert(drawn.texts.length > 2);
        checkTextsAreApart(drawn.svg);
      }
  },
  'the script reaches nothing outside the page'() {
    assert(
        !/\bfetch\b|XMLHttpRequest|\bimport\b|\bWebSocket\b|innerHTML|\beval\b|\bsrc\b|http/.test(
            script));
  },
};

let failed = 0;
for (const [claim, test] of Object.entries(TESTS)) {
  try {
    test();
  } catch (error) {
    ++failed;
    console.log(`FAILED: ${claim}\n${error.stack}`);
  }
}
console.log(`${Object.keys(TESTS).length - failed} of ${Object.keys(TESTS).length} hold`);
process.exit(failed ? 1 : 0);
