# All that could explain a number, in one question: sections, each after a line that nothing else has. clusters.sh is
# the last of them, and sme_registers.sh.
exec < /dev/null 2> /dev/null
section() { echo; echo "--- sme2-kit: $1"; }
section uname; uname -s; uname -m; uname -r
section os; cat /etc/os-release
section board; tr -d '\0' < /proc/device-tree/model || cat /sys/class/dmi/id/product_name
section machine_id; cat /etc/machine-id
section name; hostname || uname -n
section user; id -un
section boot; cat /proc/sys/kernel/random/boot_id
section cpuinfo; cat /proc/cpuinfo
section governors; cat /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor
section khz; cat /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq
section memory; cat /proc/meminfo
section load; cat /proc/loadavg
section libc; ldd --version 2>&1 | head -n 2
section randomize; cat /proc/sys/kernel/randomize_va_space
section clusters
