import { describe, expect, test } from '@jest/globals';
import { parseExact } from '@virtkeep/shared/exact-json';
import { checkArguments, KNOWN_COMMANDS, MAX_PIECE_BYTES } from './commands.ts';

/** The list of the specification, 4.4. */
const SPECIFIED =
  `guest-ssh-remove-authorized-keys guest-ssh-add-authorized-keys guest-ssh-get-authorized-keys guest-get-devices
  guest-get-osinfo guest-get-timezone guest-get-users guest-get-host-name guest-exec guest-exec-status
  guest-get-memory-block-info guest-set-memory-blocks guest-get-memory-blocks guest-set-user-password guest-get-fsinfo
  guest-get-disks guest-set-vcpus guest-get-vcpus guest-network-get-interfaces guest-suspend-hybrid guest-suspend-ram
  guest-suspend-disk guest-fstrim guest-fsfreeze-thaw guest-fsfreeze-freeze-list guest-fsfreeze-freeze
  guest-fsfreeze-status guest-file-flush guest-file-seek guest-file-write guest-file-read guest-file-close
  guest-file-open guest-shutdown guest-info guest-set-time guest-get-time guest-ping guest-sync
  guest-sync-delimited`.split(/\s+/);

test('the arguments of every command of the specification are known', () => {
  expect([...KNOWN_COMMANDS].sort()).toEqual([...SPECIFIED].sort());
});

const invalid = (field: string, reason?: string) =>
  expect.objectContaining({
    msgKey: 'guest_argument_invalid',
    params: expect.objectContaining({ field, ...(reason ? { reason } : {}) }),
  });
const refusal = (command: string, args: Record<string, unknown>): unknown => {
  try {
    checkArguments('vm', command, args);
    return undefined;
  } catch (error) {
    return error;
  }
};

describe('accepted', () => {
  test.each<[string, Record<string, unknown>]>([
    ['guest-ping', {}],
    ['guest-exec', { path: '/bin/ls' }],
    [
      'guest-exec',
      { path: 'ls', arg: ['-l', ''], env: ['A=b=c'], 'input-data': 'YQ==', 'capture-output': true },
    ],
    ['guest-exec', { path: 'ls', 'capture-output': 'merged' }],
    ['guest-set-time', {}],
    ['guest-set-time', { time: 1_800_000_000_000_000_000 }],
    ['guest-set-time', parseExact('{"time":9223372036854775807}') as Record<string, unknown>],
    ['guest-sync', parseExact('{"id":-9223372036854775808}') as Record<string, unknown>],
    ['guest-file-seek', { handle: 1, offset: -5, whence: 'end' }],
    ['guest-file-open', { path: '/x', mode: 'r+' }],
    ['guest-file-read', { handle: 1000, count: MAX_PIECE_BYTES }],
    ['guest-set-vcpus', { vcpus: [{ 'logical-id': 1, online: false }] }],
    ['guest-ssh-add-authorized-keys', { username: 'u', keys: ['k'], reset: true }],
    ['guest-command-of-next-year', { whatever: [1, { a: null }] }],
  ])('%s %j', (command, args) => {
    expect(refusal(command, args)).toBeUndefined();
  });
});

describe('refused, naming the argument', () => {
  test.each<[string, Record<string, unknown>, string]>([
    ['guest-ping', { verbose: true }, 'verbose'],
    ['guest-exec', {}, 'path'],
    ['guest-exec', { path: '' }, 'path'],
    ['guest-exec', { path: '-c' }, 'path'],
    ['guest-exec', { path: 7 }, 'path'],
    ['guest-exec', { path: 'a\0b' }, 'path'],
    ['guest-exec', { path: 'ls', arg: '-l' }, 'arg'],
    ['guest-exec', { path: 'ls', arg: [1] }, 'arg'],
    ['guest-exec', { path: 'ls', args: [] }, 'args'],
    ['guest-exec', { path: 'ls', env: ['=x'] }, 'env'],
    ['guest-exec', { path: 'ls', 'input-data': 'not base64' }, 'input-data'],
    ['guest-exec', { path: 'ls', 'input-data': 'A'.repeat(140_000) }, 'input-data'],
    ['guest-exec', { path: 'ls', 'capture-output': 'all' }, 'capture-output'],
    ['guest-exec-status', { pid: '1' }, 'pid'],
    ['guest-exec-status', { pid: 1.5 }, 'pid'],
    ['guest-exec', { path: 'ls', arg: ['half a pair: \ud83d'] }, 'arg'],
    ['guest-sync', { id: 2 ** 63 }, 'id'],
    ['guest-sync', { id: '1' }, 'id'],
    ['guest-set-time', parseExact('{"time":9223372036854775808}') as Record<string, unknown>, 'time'],
    ['guest-set-time', { time: -1 }, 'time'],
    ['guest-exec-status', parseExact('{"pid":9007199254740993}') as Record<string, unknown>, 'pid'],
    ['guest-file-open', { path: '/x', mode: ['r'] }, 'mode'],
    ['guest-file-read', { handle: 1, count: MAX_PIECE_BYTES + 1 }, 'count'],
    ['guest-file-open', { path: '/x', mode: 'rm' }, 'mode'],
    ['guest-file-seek', { handle: 1, offset: 0, whence: 3 }, 'whence'],
    ['guest-shutdown', { mode: 'explode' }, 'mode'],
    ['guest-set-vcpus', { vcpus: [{ 'logical-id': 1 }] }, 'vcpus'],
    ['guest-set-vcpus', { vcpus: [{ 'logical-id': 1, online: true, extra: 1 }] }, 'vcpus'],
    ['guest-set-vcpus', { vcpus: [{ 'logical-id': 0.5, online: true }] }, 'vcpus'],
    ['guest-set-vcpus', { vcpus: [{ 'logical-id': -1, online: true }] }, 'vcpus'],
    ['guest-set-vcpus', { vcpus: [{ 'logical-id': 0, online: true, 'can-offline': 'yes' }] }, 'vcpus'],
    ['guest-set-vcpus', { vcpus: [{ 'logical-id': 0, online: true, constructor: 1 }] }, 'vcpus'],
    ['guest-set-memory-blocks', { 'mem-blks': [null] }, 'mem-blks'],
    ['guest-set-user-password', { username: 'u', password: 'c2VjcmV0' }, 'crypted'],
    ['guest-ping', { constructor: 1 }, 'constructor'],
    ['guest-ping', parseExact('{"__proto__":1}') as Record<string, unknown>, '__proto__'],
  ])('%s %j', (command, args, field) => {
    expect(refusal(command, args)).toEqual(invalid(field));
  });

  test.each<[string, Record<string, unknown>, string, string]>([
    ['guest-ping', { verbose: true }, 'verbose', 'is not known'],
    ['guest-exec', { arg: 1, args: 1 }, 'args', 'is not known'],
    ['guest-exec', {}, 'path', 'is required'],
    [
      'guest-file-seek',
      { handle: 'x', offset: 'x' },
      'handle',
      'must be an integer from 0 to 9007199254740991',
    ],
    ['guest-set-time', { time: -1 }, 'time', 'must be an integer from 0 to 9223372036854775807'],
    ['guest-shutdown', { mode: 'explode' }, 'mode', 'must be one of powerdown, halt, reboot'],
    ['guest-exec', { path: 'ls', 'input-data': 'A' }, 'input-data', 'must be base64'],
    [
      'guest-exec',
      { path: 'ls', 'input-data': 'AAAA'.repeat(31_000) },
      'input-data',
      'holds more than 92160 bytes',
    ],
    [
      'guest-set-vcpus',
      { vcpus: [{ 'logical-id': 1, online: 1 }] },
      'vcpus',
      'must be a list of objects with logical-id, online, can-offline',
    ],
  ])('and what is wrong with it: %s %j', (command, args, field, reason) => {
    expect(refusal(command, args)).toEqual(invalid(field, reason));
  });

  test('a list without end before its items are looked at', () => {
    const args = { username: 'u', keys: Array(1_000_000).fill(1) };
    expect(refusal('guest-ssh-remove-authorized-keys', args)).toEqual(invalid('keys'));
  });

  test('without the value, which may be a secret', () => {
    const args = { username: 'u', password: 'hunter2 is no base64!', crypted: false };
    expect(String(refusal('guest-set-user-password', args))).not.toContain('hunter2');
  });

  test('what cannot be a name', () => {
    expect(refusal('guest ping"', {})).toEqual(expect.objectContaining({ msgKey: 'guest_command_unknown' }));
  });
});
