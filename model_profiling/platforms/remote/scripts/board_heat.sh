# The sensors of a board, and its clock limits.
for z in /sys/class/thermal/thermal_zone*; do
  [ -r "$z/temp" ] && echo "zone|$(cat "$z/type" 2> /dev/null)|$(cat "$z/temp" 2> /dev/null)"
done
cat /sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq 2> /dev/null
true
