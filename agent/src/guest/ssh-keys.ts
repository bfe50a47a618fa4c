/** The SSH keys of a user of a Unix guest. */
import type { Domain } from '@virtkeep/node-libvirt';
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { runProgram } from './exec.ts';
import { nameOf } from './failures.ts';
import { isWindows, osInfo } from './os.ts';
import { guestCommand } from './session.ts';

const READ = `home=$( (getent passwd "$1" || grep "^$1:" /etc/passwd) 2>/dev/null | head -n 1 | cut -d: -f6)
[ -n "$home" ] || exit 3
[ ! -e "$home/.ssh/authorized_keys" ] || cat "$home/.ssh/authorized_keys"`;
const NO_USER = 3;
const TIMEOUT_MS = 20_000;
const MAX_KEYS = 1_000;

/**
 * The lines of the user's authorized_keys without comments. An agent that does not know the command is helped by a shell.
 * @throws VirtkeepError guest_os_unsupported (Windows), guest_operation_failed (no such user); as `guestCommand`
 */
export async function listSshKeys(domain: Domain, user: string, signal: AbortSignal): Promise<string[]> {
  const operation = 'Listing SSH keys';
  try {
    const command = 'guest-ssh-get-authorized-keys';
    const { keys } = (await guestCommand(domain, command, { username: user }, { signal })) as {
      keys?: unknown;
    };
    return linesOf(Array.isArray(keys) ? keys.filter(key => typeof key === 'string').join('\n') : '');
  } catch (error) {
    if (isNoFile(error)) return [];
    if (!hasKey(error, 'guest_command_unknown', 'guest_command_disabled')) throw error;
  }
  if (isWindows(await osInfo(domain, signal)))
    throw new VirtkeepError('guest_os_unsupported', { domain: nameOf(domain), os: 'Windows', operation });
  const program = { path: '/bin/sh', args: ['-c', READ, 'sh', user], timeoutMs: TIMEOUT_MS };
  const { exitCode, out, err } = await runProgram(domain, program, signal);
  if (exitCode === 0) return linesOf(out.toString());
  const reason =
    exitCode === NO_USER
      ? `it has no user ${user}`
      : err.toString().trim().slice(0, 500) || 'it cannot be read';
  throw new VirtkeepError('guest_operation_failed', { domain: nameOf(domain), operation, reason });
}

/** A user who never had a key has no file. */
function isNoFile(error: unknown): boolean {
  return (
    hasKey(error, 'guest_agent_failed') && /authorized_keys.*No such file/.test(error.params.reason ?? '')
  );
}

function linesOf(text: string): string[] {
  const lines = text.split('\n').map(line => line.trim());
  return lines.filter(line => line !== '' && !line.startsWith('#')).slice(0, MAX_KEYS);
}
