/**
 * The SSH keys of a user of a Linux guest (specification 4.6). In a running guest by the agent's own commands; an agent that
 * lacks them runs a script as the user. In one that is off by virt-customize.
 */

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fromIoError, hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import type { Result } from '@virtkeep/shared/operation-result';
import { isWindows } from '../../guest/index.ts';
import type { Workflow } from '../context.ts';
import { type GuestOperations, inDomain, requireOff, requireRunning } from './domain.ts';
import { type Guest, mustRun, operationFailed } from './guest.ts';
import { changeOffline, type OfflineImages } from './offline.ts';
import { hasBlob, keyLine, keyLines, parseSshKey, type SshKey } from './ssh-key.ts';

export type KeyChange = 'add' | 'remove';

export interface KeysRequest {
  domainId: string;
  /** Checked: a user name of Linux. */
  user: string;
  keys: SshKey[];
  /** Layers of a VM whose disks are all devices may lie on a network file system. */
  allowNetworkLayers: boolean;
}

/** Keys of one request. */
export const MAX_KEYS = 64;

const OPERATIONS: Record<KeyChange, string> = { add: 'adding SSH keys', remove: 'removing SSH keys' };

/** @throws VirtkeepError invalid_field, ssh_key_invalid */
export function requireKeys(texts: readonly string[]): SshKey[] {
  if (texts.length === 0) throw new VirtkeepError('missing_field', { field: 'keys' });
  if (texts.length > MAX_KEYS)
    throw new VirtkeepError('invalid_field', { field: 'keys', reason: `are more than ${MAX_KEYS}` });
  return texts.map(parseSshKey);
}

/** The workflow for a running guest. Result: `{"keys","method":"agent"}`, all keys of the user. */
export function changeSshKeys(
  operations: GuestOperations,
  change: KeyChange,
  request: KeysRequest,
): Workflow {
  const { user, keys } = request;
  return context =>
    inDomain(operations, request.domainId, context, async domain => {
      const guest = await context.step('check', async () => {
        const running = await requireRunning(operations, domain, context.signal);
        await refuseWindows(running.guest, OPERATIONS[change]);
        return running.guest;
      });
      await context.step('apply', () => changeRunning(guest, change, user, keys));
      const left = await context.step('verify', async () => {
        const found = await keysOf(guest, change, user);
        requireChanged(guest, change, keys, found);
        return found;
      });
      context.commit(changed(change, left, 'agent'));
    });
}

/** The workflow for a guest that is off. Result: `{"keys","method":"offline"}`, all keys of the user. */
export function changeSshKeysOffline(
  operations: GuestOperations,
  change: KeyChange,
  request: KeysRequest,
): Workflow {
  const { user, keys, allowNetworkLayers } = request;
  return context =>
    inDomain(operations, request.domainId, context, async domain => {
      const action = change === 'add' ? 'given SSH keys' : 'freed of SSH keys';
      const { config, disks } = await context.step('check', () =>
        requireOff(operations, domain, action, context.signal),
      );
      const { name } = config;
      const target = { domain, name, disks, action, allowNetworkLayers };
      await changeOffline(operations, context, target, async images => {
        if (change === 'add') await addOffline(images, user, keys);
        else await removeOffline(images, await readOffline(images, name, change, user), keys);
        const { lines } = await readOffline(images, name, change, user);
        requireChanged({ name }, change, keys, lines);
        return changed(change, lines, 'offline');
      });
    });
}

const changed = (change: KeyChange, keys: string[], method: 'agent' | 'offline'): Result => ({
  $case: change === 'add' ? 'addSshKeys' : 'removeSshKeys',
  value: { keys, method },
});

async function refuseWindows(guest: Guest, operation: string): Promise<void> {
  if (isWindows(await guest.osInfo()))
    throw new VirtkeepError('guest_os_unsupported', { domain: guest.name, os: 'Windows', operation });
}

function requireChanged(
  guest: Pick<Guest, 'name'>,
  change: KeyChange,
  keys: SshKey[],
  found: string[],
): void {
  const wrong = keys.filter(({ blob }) => found.some(line => hasBlob(line, blob)) !== (change === 'add'));
  if (wrong.length === 0) return;
  const reason = change === 'add' ? 'a key is not there afterwards' : 'a key is still there afterwards';
  throw operationFailed(guest, OPERATIONS[change], reason);
}

async function changeRunning(guest: Guest, change: KeyChange, user: string, keys: SshKey[]): Promise<void> {
  const present = await keysOf(guest, change, user);
  // the agent knows a key by its whole line: of the same key with another comment it would add a second line
  const lines =
    change === 'add'
      ? keys.filter(({ blob }) => !present.some(line => hasBlob(line, blob))).map(keyLine)
      : present.filter(line => keys.some(({ blob }) => hasBlob(line, blob)));
  if (lines.length === 0) return;
  try {
    await guest.command(`guest-ssh-${change}-authorized-keys`, { username: user, keys: lines });
  } catch (error) {
    if (!isWithoutCommand(error)) throw ownFailure(guest, OPERATIONS[change], error);
    const script = { user, script: SCRIPTS[change], input: `${lines.join('\n')}\n` };
    await asUser(guest, OPERATIONS[change], script);
  }
}

async function keysOf(guest: Guest, change: KeyChange, user: string): Promise<string[]> {
  return guest.sshKeys(user).catch(error => {
    throw ownFailure(guest, OPERATIONS[change], error);
  });
}

/** An old agent has no such commands; they may be disabled while programs are not. */
const isWithoutCommand = (error: unknown) => hasKey(error, 'guest_command_unknown', 'guest_command_disabled');

/** What the agent says of a user that is not there, as the operation's failure. */
function ownFailure(guest: Guest, operation: string, error: unknown): unknown {
  return hasKey(error, 'guest_agent_failed')
    ? operationFailed(guest, operation, error.params.reason ?? '')
    : error;
}

/** They work in the user's directory as the user, who could lead root elsewhere by a link. Keys come on standard input. */
const SCRIPTS = {
  add: `umask 077 && mkdir -p ~/.ssh && f=~/.ssh/authorized_keys && touch "$f" &&
{ [ -z "$(tail -c 1 "$f")" ] || echo >>"$f"; } && cat >>"$f" &&
{ ! command -v restorecon >/dev/null || restorecon -R ~/.ssh; }`,
  remove: `umask 077 && f=~/.ssh/authorized_keys && n=$(mktemp ~/.ssh/.keys.XXXXXX) &&
{ grep -vxF -f - "$f" >"$n"; [ $? -le 1 ]; } && cat "$n" >"$f" && rm "$n"`,
};

function asUser(
  guest: Guest,
  operation: string,
  { user, script, input }: { user: string; script: string; input: string },
): Promise<string> {
  const args = ['-l', user, '-s', '/bin/sh', '-c', script];
  return mustRun(guest, operation, { path: 'runuser', args, input });
}

interface KeyFile {
  path: string;
  lines: string[];
}

/**
 * Keys of a user by the disks alone: where they are says the guest's list of users. Each look costs a start of the appliance,
 * so both are asked at once, for the directory that the user most likely has.
 */
async function readOffline(
  images: OfflineImages,
  domain: string,
  change: KeyChange,
  user: string,
): Promise<KeyFile> {
  const guess = keysPath(user === 'root' ? '/root' : `/home/${user}`);
  const both = await images.read('/etc/passwd', guess);
  const home = homeIn(both ?? (await images.read('/etc/passwd')) ?? '', user);
  if (home === undefined)
    throw operationFailed({ name: domain }, OPERATIONS[change], `it has no user ${user}`);
  const path = keysPath(home);
  const text = path === guess ? both : await images.read(path);
  return { path, lines: keyLines(text ?? '').filter(line => !IS_USER.test(line)) };
}

const keysPath = (home: string) => join(home, '.ssh', 'authorized_keys');
/** A line of /etc/passwd: no key has such a beginning. */
const IS_USER = /^[^:\s]+:[^:]*:\d+:\d+:/;

/** The home directory of a user in the text of /etc/passwd; undefined without one. */
export function homeIn(passwd: string, user: string): string | undefined {
  const fields = passwd
    .split('\n')
    .map(line => line.split(':'))
    .find(([name, , , , , home]) => name === user && home?.startsWith('/'));
  return fields?.[5];
}

async function addOffline(images: OfflineImages, user: string, keys: SshKey[]): Promise<void> {
  const options: string[] = [];
  for (const [index, key] of keys.entries()) {
    const path = join(images.directory, `key-${index}.pub`);
    await writeFile(path, `${keyLine(key)}\n`).catch(error => {
      throw fromIoError(error, 'writing', path);
    });
    options.push('--ssh-inject', `${user}:file:${path}`);
  }
  await images.run('virt-customize', [...options, '--selinux-relabel']);
}

/** Lines with these keys go; owner, permissions and label of the file stay. Base64 needs no quoting in Perl. */
async function removeOffline(images: OfflineImages, { path, lines }: KeyFile, keys: SshKey[]): Promise<void> {
  const present = keys.filter(({ blob }) => lines.some(line => hasBlob(line, blob)));
  if (present.length === 0) return;
  const edits = present.flatMap(({ blob }) => ['--edit', `${path}:$_ = "" if index($_, q(${blob})) >= 0`]);
  await images.run('virt-customize', edits);
}
