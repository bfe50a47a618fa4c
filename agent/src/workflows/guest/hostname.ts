/**
 * Gives a guest its host name: a running Linux by hostnamectl, a running Windows by Rename-Computer and a restart, a Linux that
 * is off by virt-customize on its disks (specification 4.6). The name is read back from the guest.
 */
import type { Result } from '@virtkeep/shared/operation-result';
import { isWindows } from '../../guest/index.ts';
import type { OperationContext, Workflow } from '../context.ts';
import { changing } from './change.ts';
import { type GuestOperations, inDomain, requireOff, requireRunning } from './domain.ts';
import { type Guest, mustRun, operationFailed } from './guest.ts';
import { requireComputerName, requireHostname } from './names.ts';
import { changeOffline, type OfflineImages } from './offline.ts';
import { restartGuest } from './restart.ts';
import { powershell, READ_NAME, RENAME, runScript } from './windows.ts';

export interface HostnameRequest {
  domainId: string;
  /** Empty: the domain's name. */
  hostname: string;
  /** Restart a Windows guest, which takes its name only then. */
  restart: boolean;
  /** Layers of a VM whose disks are all devices may lie on a network file system. */
  allowNetworkLayers: boolean;
}

const OPERATION = 'setting the host name';
const toTake = (hostname: string) => `take the name ${hostname}`;
const SCRIPT_TIMEOUT_MS = 180_000;

/** The workflow for a running guest. Result: `{"hostname","method":"agent","restarted"}`. */
export function setHostname(operations: GuestOperations, request: HostnameRequest): Workflow {
  return context =>
    inDomain(operations, request.domainId, context, async domain => {
      const { guest, hostname, onWindows } = await context.step('check', async () => {
        const { config, guest } = await requireRunning(operations, domain, context.signal);
        const onWindows = isWindows(await guest.osInfo());
        const required = onWindows ? requireComputerName : requireHostname;
        return { guest, onWindows, hostname: required('hostname', request.hostname || config.name) };
      });
      if (onWindows) return nameWindows(context, guest, hostname, request.restart);
      await context.step('apply', () => nameLinux(changing(context, guest, toTake(hostname)), hostname));
      await context.step('verify', () => verifyLinux(guest, hostname));
      context.commit(named(hostname, 'agent', false));
    });
}

/** The workflow for a guest that is off. Result: `{"hostname","method":"offline","restarted":false}`. */
export function setHostnameOffline(operations: GuestOperations, request: HostnameRequest): Workflow {
  const { allowNetworkLayers } = request;
  return context =>
    inDomain(operations, request.domainId, context, async domain => {
      const action = 'given a host name';
      const { config, disks } = await context.step('check', () =>
        requireOff(operations, domain, action, context.signal),
      );
      const hostname = requireHostname('hostname', request.hostname || config.name);
      const target = { domain, name: config.name, disks, action, allowNetworkLayers };
      await changeOffline(operations, context, target, async images => {
        await nameImages(images, config.name, hostname);
        return named(hostname, 'offline', false);
      });
    });
}

const named = (hostname: string, method: 'agent' | 'offline', restarted: boolean): Result => ({
  $case: 'setHostname',
  value: { hostname, method, restarted },
});

/** libguestfs writes the name where the distributions it knows have it; /etc/hostname is where all of today read it. */
async function nameImages(images: OfflineImages, domain: string, hostname: string): Promise<void> {
  const written = ['--write', `/etc/hostname:${hostname}\n`];
  await images.run('virt-customize', ['--hostname', hostname, ...written, '--selinux-relabel']);
  const found = (await images.read('/etc/hostname'))?.trim();
  if (found !== hostname)
    throw operationFailed({ name: domain }, OPERATION, `its disk says "${found ?? ''}" afterwards`);
}

/** Without a D-Bus there is no hostnamectl; then the file and the kernel are told. */
const NAME_LINUX = `hostnamectl set-hostname "$1" 2>/dev/null && exit 0
printf '%s\\n' "$1" >/etc/hostname && hostname "$1"`;
/** What the kernel says, and what the next start reads. */
const READ_LINUX = 'uname -n; [ ! -e /etc/hostname ] || cat /etc/hostname';

const shell = (script: string, ...args: string[]) => ({
  path: '/bin/sh',
  args: ['-c', script, 'sh', ...args],
});

/** Renames a running Linux. @throws VirtkeepError guest_operation_failed; those of the agent */
export async function nameLinux(guest: Guest, hostname: string): Promise<void> {
  await mustRun(guest, OPERATION, { ...shell(NAME_LINUX, hostname), timeoutMs: SCRIPT_TIMEOUT_MS });
}

/** The name that the kernel of a running Linux has. */
export async function linuxName(guest: Guest): Promise<string> {
  return (await mustRun(guest, 'reading the host name', shell('uname -n'))).trim();
}

async function verifyLinux(guest: Guest, hostname: string): Promise<void> {
  const names = (await mustRun(guest, OPERATION, shell(READ_LINUX))).trim().split('\n');
  const wrong = names.find(name => name.trim() !== hostname);
  if (wrong !== undefined)
    throw operationFailed(guest, OPERATION, `the guest says "${wrong.trim()}" afterwards`);
}

async function nameWindows(
  context: OperationContext,
  guest: Guest,
  hostname: string,
  restart: boolean,
): Promise<void> {
  const read = () => runScript(guest, OPERATION, powershell(READ_NAME, {}, SCRIPT_TIMEOUT_MS));
  await context.step('apply', async () => {
    const names = await runScript(
      changing(context, guest, toTake(hostname)),
      OPERATION,
      powershell(RENAME, { name: hostname }, SCRIPT_TIMEOUT_MS),
    );
    requireName(guest, names.next, hostname);
  });
  const isPending = await context.step('verify', async () => {
    const { active, next } = await read();
    requireName(guest, next, hostname);
    return !isSame(active, hostname);
  });
  if (!isPending || !restart) {
    if (isPending) context.warn('The guest takes its new name when it is restarted.');
    context.commit(named(hostname, 'agent', false));
    return;
  }
  const restarted = await context.step('restart', () => restartGuest(context, guest, 'windows'));
  if (restarted)
    await context.step('read back', async () => requireName(guest, (await read()).active, hostname));
  context.commit(named(hostname, 'agent', restarted));
}

/** Windows writes the names of computers in capitals. */
const isSame = (found: unknown, expected: string) => String(found).toUpperCase() === expected.toUpperCase();

function requireName(guest: Guest, found: unknown, expected: string): void {
  if (!isSame(found, expected))
    throw operationFailed(guest, OPERATION, `the guest says "${String(found)}" afterwards`);
}
