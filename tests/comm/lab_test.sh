#!/bin/sh
# A short lab: two ranks on shaped links give the right sum, nothing is left behind, nor after an
# interrupted run.
# usage: lab_test.sh LAB LINE_RATE
lab=$1
line_rate=$2
left() { ip netns list 2>/dev/null | grep -c "linerate-lab-$1-"; }
start_long_run() {
  "$lab" run --ranks 2 --rate 1Mbit/s -- "$line_rate" --sizes 64MB &
  run=$!
  tries=0
  while [ "$(left $run)" -lt 4 ] && [ $tries -lt 200 ]; do sleep 0.05; tries=$((tries + 1)); done
}

"$lab" run --ranks 2 --rate 500Mbit/s -- "$line_rate" --sizes 4MB --repeat 2 --line-rate 500Mbit/s &
run=$!
wait $run
code=$?
[ $code -eq 77 ] && exit 77 # the lab has said why
[ $code -eq 0 ] || { echo "lab run: exit $code"; exit 1; }
[ "$(left $run)" -eq 0 ] || { echo "namespaces left behind"; ip netns list; exit 1; }

start_long_run
[ "$(left $run)" -eq 4 ] || { echo "no lab to interrupt"; exit 1; }
kill -TERM $run
wait $run
[ $? -eq 143 ] || { echo "interrupted run: exit code"; exit 1; }
[ "$(left $run)" -eq 0 ] ||
  { echo "namespaces left behind after an interrupt"; ip netns list; exit 1; }

start_long_run
kill -KILL $run
wait $run 2>/dev/null
"$lab" clean >/dev/null || exit 1
[ "$(left $run)" -eq 0 ] ||
  { echo "tools/lab clean left namespaces behind"; ip netns list; exit 1; }
