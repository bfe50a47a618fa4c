/** prctl(PR_SET_CHILD_SUBREAPER, 1) on x86-64, where alone the guests of the lab run; Node cannot make that call, and Debian always has perl. */
const REAPER = `
$0 = 'reaper';
syscall(157, 36, 1, 0, 0, 0);
defined(my $own = fork) or die "fork: $!";
if ($own == 0) { exec { $ARGV[0] } @ARGV or exit 127 }
my $code = 0;
while ((my $pid = wait) > 0) { $code = $? >> 8 || $? & 127 if $pid == $own }
exit $code;
`;

/**
 * A program whose daemons do not fall to init when their parents end, and are gone the moment they end: an init that looks for the
 * ended only now and then (a container's, a small virtual machine's) makes libvirt wait for a guest that is off already. It ends
 * when the program and all that it left behind have ended.
 */
export const reaping = (argv: readonly string[]): string[] => ['perl', '-e', REAPER, '--', ...argv];
