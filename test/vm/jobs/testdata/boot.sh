# Prints the versions in this virtual machine, and fails if systemd reports a problem with the boot.
uname -r
nft --version
systemctl --version | head -n 1
systemctl is-system-running --wait
state=$?
systemctl --failed --no-legend
systemd-analyze time
exit $state
