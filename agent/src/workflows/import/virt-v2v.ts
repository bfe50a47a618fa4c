/**
 * Runs `virt-v2v-in-place`, which puts the drivers of virtio into a guest: it reads and changes the disks of the guest, and runs programs of the
 * guest in libguestfs's appliance. It gets images that are the operation's own, and nothing else: a definition of ours names them, at a place
 * where there is nothing besides, which only its processes see. It has no network. It names files to servers of its own by their real names,
 * so the images are mounted there one by one, each after a look whether it is the very file that is held open.
 */
import type { FileHandle } from 'node:fs/promises';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { withoutHidden } from '@virtkeep/shared/hidden-characters';
import { redactText } from '@virtkeep/shared/log';
import { failureOf, isSysAdmin, type ProgramEnd } from '@virtkeep/shared/program';
import { GiB, KiB, MiB } from '@virtkeep/shared/units';
import { containedCommand, NO_SUCH_PROGRAM, runContained } from '../contained-program.ts';
import type { OperationContext } from '../context.ts';
import { withRoom } from '../guest/room.ts';
import { emulatedWhereNeeded, guestfsSettings, mayHaveOwnTmp, reasonIn } from '../libguestfs.ts';
import { PATH, requireTool, type Tool, toolMissing } from './tool.ts';

const PROGRAM = 'virt-v2v-in-place';
const TOOL: Tool = { program: PROGRAM, package: 'virt-v2v' };
/** Under emulation, a large guest that makes its initial RAM disks anew. */
const TIMEOUT_MS = 4 * 3_600_000;
const MAX_OUTPUT_BYTES = 4 * MiB;
const KEPT_OUTPUT = 16 * KiB;
const MAX_REASON = 600;
const MAX_WARNINGS = 20;
/** Of one of its processes: the machine of its appliance has some 2.5 GiB of memory. */
const MEMORY_BYTES = 16 * GiB;
/** libguestfs makes its appliance in a file of 4 GiB, most of which is a hole. */
const APPLIANCE_BYTES = 8 * GiB;

/** Empty on the node; each run has a file system of its own there. */
const PLACE = '/run/virtkeep-v2v';
/** What of the agent's environment it gets: where libguestfs's parts are, and the drivers for Windows. */
const KEPT_VARIABLES = [
  ...['SUPERMIN_KERNEL', 'SUPERMIN_KERNEL_VERSION', 'SUPERMIN_MODULES', 'LIBGUESTFS_CACHEDIR'],
  ...['LIBGUESTFS_PATH', 'LIBGUESTFS_HV', 'VIRTIO_WIN', 'VIRT_TOOLS_DATA_DIR'],
];

/**
 * Arguments: the definition; by each image its path and its device and inode; "--", a program. What is opened, not its name, is mounted: the
 * file that a name means may be another one a moment later.
 */
const ENTER = `mkdir -p ${PLACE} && mount -t tmpfs -o mode=0700,size=1m tmpfs ${PLACE} || exit
printf %s "$1" >${PLACE}/guest.xml || exit
shift; n=0
until [ "$1" = -- ]; do
  exec 3<"$1" || exit
  [ "$(stat -Lc %d:%i /proc/self/fd/3)" = "$2" ] || { echo "error: $1 is another file by now" >&2; exit 1; }
  : >"${PLACE}/$n.qcow2" && mount --bind --no-canonicalize /proc/self/fd/3 "${PLACE}/$n.qcow2" || exit
  exec 3<&-; shift 2; n=$((n+1))
done
shift; exec "$@"`;

/** What the user is told. */
export const DRIVERS_INJECTED = 'Drivers: virt-v2v has put those of virtio into the guest.';

/** An image of the operation's own, a qcow2 that stands alone. */
export interface OwnImage {
  path: string;
  /** Held open. */
  file: FileHandle;
  /** As the guest sees it. */
  sizeBytes: number;
}

export interface DrivenGuest {
  /** Name of the VM, for error texts. */
  name: string;
  /** In the order of the VM's disks; changed in place. */
  images: readonly OwnImage[];
}

/** @throws VirtkeepError conflicting_fields */
export function refuseDriversWithoutVirtio(request: { injectDrivers: boolean; virtio: boolean }): void {
  if (!request.injectDrivers || request.virtio) return;
  const [first, second] = ['inject_drivers', 'virtio: false'];
  throw new VirtkeepError('conflicting_fields', { first, second, field: 'inject_drivers' });
}

/** @param path directories in which it is looked for. @throws VirtkeepError tool_missing */
export const requireVirtV2v = (path?: string): Promise<void> => requireTool(TOOL, path);

/**
 * Puts the drivers into a guest. When this has thrown nothing works on the images any more, and what they hold is of no use.
 * @returns warnings
 * @throws VirtkeepError tool_missing, driver_injection_failed, disk_full, timed_out, canceled
 */
export async function injectDrivers(
  context: OperationContext,
  guest: DrivenGuest,
  { forceTcg = false }: { forceTcg?: boolean | undefined },
): Promise<string[]> {
  const { signal, log } = context;
  const paths = guest.images.map(({ path }) => path);
  if (paths.length === 0) throw failedWith(guest)('it has no disks');
  return withRoom(paths, signal, async ending => {
    const outcome = await emulatedWhereNeeded(PROGRAM, { forceTcg, signal: ending, log }, emulated =>
      runOnce(context, guest, emulated, ending),
    );
    if (outcome instanceof VirtkeepError) throw outcome;
    return outcome;
  });
}

const failedWith =
  ({ name }: DrivenGuest) =>
  (reason: string, cause?: unknown): VirtkeepError =>
    new VirtkeepError('driver_injection_failed', { vm: `"${withoutHidden(name)}"`, reason }, { cause });

/** What it says when its appliance runs: from then on the images may have been changed, and its words may be the guest's. */
const HAS_BEGUN = /^\[ *[\d.]+\] Inspecting/m;

/** @returns warnings, or why it failed when trying again is of no use. @throws VirtkeepError as `injectDrivers` */
async function runOnce(
  { log, progress }: OperationContext,
  guest: DrivenGuest,
  emulated: boolean,
  signal: AbortSignal,
): Promise<string[] | VirtkeepError> {
  throwIfAborted(signal);
  const failed = failedWith(guest);
  const files = [];
  for (const { path, file, sizeBytes } of guest.images) {
    const { dev, ino } = await file.stat({ bigint: true });
    files.push({ path, id: `${dev}:${ino}`, sizeBytes });
  }
  const argv = v2vCommand(files, emulated);
  const hasOwnTmp = mayHaveOwnTmp(files.map(({ path }) => path));
  const how = { name: 'v2v', hasOwnTmp, isOffline: true, timeoutMs: TIMEOUT_MS };
  let [said, hasBegun] = ['', false];
  const end = await runContained(containedCommand(argv, { ...how, isPrivileged: await isSysAdmin() }), {
    signal,
    operation: PROGRAM,
    timeoutMs: TIMEOUT_MS,
    maxOutputBytes: MAX_OUTPUT_BYTES,
    failed,
    onOutput: piece => {
      said = (said + piece.toString('utf8')).slice(-KEPT_OUTPUT);
      hasBegun ||= HAS_BEGUN.test(said);
      const step = stepIn(said);
      if (step) progress.message(plain(step).slice(0, 200));
    },
  });
  const told = { stdout: redactText(said), stderr: redactText(end.stderr.slice(-KEPT_OUTPUT)) };
  log.info(`${PROGRAM} has ended`, { code: end.code, signal: end.signalName, ...told });
  if (end.code === NO_SUCH_PROGRAM) throw toolMissing(TOOL);
  if (end.code === 0) return outcomeOf(said, end.stderr, failed);
  const failure = failed(reasonOfEnd(end, said));
  if (hasBegun) return failure;
  throw failure;
}

/**
 * What it does now: the text of `[  12.3] Inspecting the source`, in the last line with such a bracket, once that has ended. Only that line
 * is looked at, since this is asked for each piece of what it says.
 */
export function stepIn(said: string): string | undefined {
  const last = said.lastIndexOf('[');
  const end = said.indexOf('\n', last);
  if (last < 0 || end < 0) return undefined;
  return /\[ *[\d.]+\] (.*)/s.exec(said.slice(said.lastIndexOf('\n', last) + 1, end))?.[1];
}

/** Redacted and on one line: the words are the guest's in part. */
const plain = (text: string): string => withoutHidden(redactText(text)).replaceAll(/ +/g, ' ').trim();

function reasonOfEnd(end: ProgramEnd, said: string): string {
  const last = said.trimEnd().split('\n').at(-1) ?? '';
  return plain(reasonIn(end.stderr) || failureOf({ ...end, stderr: last })).slice(0, MAX_REASON);
}

/**
 * It succeeds, too, with a guest for which it has no drivers, and says so: that one would not start from the disks that it gets.
 * @throws VirtkeepError driver_injection_failed
 */
export function outcomeOf(
  stdout: string,
  stderr: string,
  failed: (reason: string) => VirtkeepError,
): string[] {
  const words = plain(`${stdout}\n${stderr}`.replaceAll('\n', ' '));
  if (!/This guest has virtio drivers installed/.test(words))
    throw failed(
      'it has no drivers of virtio for this guest; those for Windows it takes from /usr/share/virtio-win on the node',
    );
  // a warning goes on until the next message; it is wrapped
  return stderr
    .split(/^virt-v2v[\w-]*: /m)
    .filter(message => message.startsWith('warning: '))
    .slice(0, MAX_WARNINGS)
    .map(message => `virt-v2v: ${plain(message.slice('warning: '.length)).slice(0, MAX_REASON)}`);
}

/** What it converts: no more of the VM than it needs, and no word of its definition. */
export function v2vDefinition(count: number): string {
  const disks = Array.from({ length: count }, (_, index) =>
    [
      "<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>",
      `<source file='${PLACE}/${index}.qcow2'/><target dev='${devOf(index)}' bus='scsi'/></disk>`,
    ].join(''),
  );
  return [
    "<domain type='kvm'><name>guest</name><memory unit='KiB'>1048576</memory><vcpu>1</vcpu>",
    "<os><type arch='x86_64'>hvm</type></os><features><acpi/><apic/></features>",
    `<devices>${disks.join('')}</devices></domain>`,
  ].join('');
}

/** sda, …, sdz, sdaa, … */
function devOf(index: number): string {
  const letter = (number: number) => String.fromCharCode(97 + number);
  const first = Math.floor(index / 26);
  return `sd${first > 0 ? letter(first - 1) : ''}${letter(index % 26)}`;
}

export function v2vCommand(
  files: readonly { path: string; id: string; sizeBytes: number }[],
  emulated: boolean,
): string[] {
  const largest = Math.max(...files.map(({ sizeBytes }) => sizeBytes));
  const fileBytes = Math.max(APPLIANCE_BYTES, largest + Math.ceil(largest / 16) + 64 * MiB);
  const limits = [`--as=${MEMORY_BYTES}`, `--fsize=${fileBytes}`, '--core=0'];
  const kept = KEPT_VARIABLES.flatMap(name => {
    const value = process.env[name];
    return value === undefined ? [] : [`${name}=${value}`];
  });
  return [
    ...['unshare', '--mount', '--', 'sh', '-c', ENTER, 'sh', v2vDefinition(files.length)],
    ...files.flatMap(({ path, id }) => [path, id]),
    ...['--', 'env', '-i', `PATH=${PATH}`, `HOME=${PLACE}`, ...guestfsSettings(emulated), ...kept],
    // one of several systems on the disks is not guessed
    ...['prlimit', ...limits, PROGRAM, '-i', 'libvirtxml', '--root', 'single', `${PLACE}/guest.xml`],
  ];
}
