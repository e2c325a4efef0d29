# The cores of each cluster that shares a clock, and the highest clock.
for p in /sys/devices/system/cpu/cpufreq/policy*; do
  echo "$(cat "$p/related_cpus" 2> /dev/null)|$(cat "$p/cpuinfo_max_freq" 2> /dev/null)"
done
