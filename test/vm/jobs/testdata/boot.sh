# Says what this machine is, and fails if systemd is not content with the boot.
uname -r
nft --version
systemctl --version | head -n 1
systemctl is-system-running --wait
state=$?
systemctl --failed --no-legend
systemd-analyze time
exit $state
