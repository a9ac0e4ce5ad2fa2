#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two machines as network namespaces with addresses of their own: `unshare -Urnm tests/dist/two_hosts.sh WORK SCENARIO [STRATEGY]`.
# Exit code 77 where this system does not let namespaces be made. Prints what the scenario found.
work=$1
command -v ip >/dev/null && command -v pgrep >/dev/null || exit 77
mount -t tmpfs none /run 2>/dev/null && mkdir -p /run/netns || exit 77
ip netns add 10.83.0.1 2>/dev/null && ip netns add 10.83.0.2 2>/dev/null || exit 77
ip link add one type veth peer name two 2>/dev/null || exit 77
ip link set one netns 10.83.0.1 && ip link set two netns 10.83.0.2 || exit 77
for host in 1 2; do
  link=$([ $host = 1 ] && echo one || echo two)
  ip -n 10.83.0.$host addr add 10.83.0.$host/24 dev $link && ip -n 10.83.0.$host link set $link up &&
    ip -n 10.83.0.$host link set lo up || exit 77
done
printf '#!/bin/sh\nexec ip netns exec "$1" sh -c "$2"\n' >"$work/shell"
chmod +x "$work/shell"
job() { exec "$TANDEM_TOOL" launch --ssh "$work/shell" --hosts 10.83.0.1:1,10.83.0.2:1 --grace 2 "$@"; }
train="train $TANDEM_SOURCE_DIR/recipes/digits-mlp.yaml --run $work/run trainer.report=false trainer.strategy=${3:-ddp}"

case $2 in
train)  # the machines learn together
  (job $train trainer.epochs=3 2>&1)
  echo "code $?"
  ;;
slow)  # a link of 4 Mbit/s on which packets wait: late, and nobody's fault
  for host in 1 2; do
    link=$([ $host = 1 ] && echo one || echo two)
    ip netns exec 10.83.0.$host tc qdisc add dev $link root tbf rate 4mbit burst 16kb latency 400ms 2>/dev/null || exit 77
  done
  export TANDEM_DIST_DEADLINE=3
  (job $train trainer.epochs=1 2>&1)
  echo "code $?"
  ;;
partition)  # the cable is cut: every rank says so and ends
  export TANDEM_DIST_DEADLINE=2
  job $train trainer.epochs=100000 >"$work/out" 2>&1 &
  launcher=$!
  for i in $(seq 300); do grep -q 'epoch' "$work/out" && break; sleep 0.1; done
  ip -n 10.83.0.1 link set one down
  wait $launcher
  echo "code $?"
  grep -o 'cut off' "$work/out" | sort | uniq -c | sed 's/^ *//'
  ;;
gone)  # the launcher is killed: nothing stays on either machine
  job $train trainer.epochs=100000 >"$work/out" 2>&1 &
  launcher=$!
  for i in $(seq 300); do grep -q 'epoch' "$work/out" && break; sleep 0.1; done
  echo "before $(pgrep -cf "$work/run")"
  kill -9 $launcher
  for i in $(seq 150); do [ "$(pgrep -cf "$work/run")" = 0 ] && break; sleep 0.1; done
  echo "after $(pgrep -cf "$work/run")"
  ;;
esac
