# The thermal service, the battery and the clock limits of an Android device.
dumpsys thermalservice 2> /dev/null
echo '--- battery'
dumpsys battery 2> /dev/null
echo '--- limits'
cat /sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq 2> /dev/null
true
