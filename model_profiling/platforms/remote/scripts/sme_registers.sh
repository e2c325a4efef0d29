# What each core says of the SME unit that it uses.
for p in /sys/devices/system/cpu/cpu[0-9]*/regs/identification/smidr_el1; do
  [ -r "$p" ] && echo "$p|$(cat "$p" 2> /dev/null)"
done
