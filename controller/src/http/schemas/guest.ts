/** Commands of guest agents, what guests tell of themselves, and the results of operations inside of them. */
import Type from 'typebox';
import { DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S } from '../../services/guests/guests.ts';
import { STORY } from '../document/story.ts';
import { Bytes, body, described, nullable, oneOf, part, record, Time, text, texts, truth } from './common.ts';

export const GuestInfoSchema = record(
  'GuestInfo',
  {
    description: 'What a guest told of itself',
    example: {
      qemu_state: true,
      refreshed: STORY.changed,
      agent_version: '7.2.0',
      hostname: 'web-1',
      ipv4: ['192.0.2.80'],
      ipv6: ['2001:db8::80'],
      os: {
        name: 'Debian GNU/Linux',
        'kernel-release': '6.1.0-18-amd64',
        version: '12 (bookworm)',
        variant: '',
        'pretty-name': 'Debian GNU/Linux 12 (bookworm)',
        'version-id': '12',
        'variant-id': '',
        'kernel-version': '#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1',
        machine: 'x86_64',
        id: 'debian',
      },
      file_systems: [
        {
          name: 'vda1',
          mountpoint: '/',
          type: 'ext4',
          used_bytes: 3_221_225_472,
          total_bytes: 20_957_446_144,
        },
      ],
      users: [{ name: 'root', login_time: STORY.created }],
      frozen_since: null,
    },
  },
  {
    qemu_state: truth('the guest agent is connected now'),
    refreshed: nullable(described(Time, 'when the guest told the rest; null: never')),
    agent_version: nullable(text('of the guest agent')),
    hostname: nullable(text('host name of the guest')),
    ipv4: texts('its IPv4 addresses'),
    ipv6: texts('its IPv6 addresses'),
    os: nullable(
      part(
        {
          name: text('name of the system'),
          'kernel-release': text('release of its kernel'),
          version: text('version of the system, in words'),
          variant: text('variant of the system, in words'),
          'pretty-name': text('name and version'),
          'version-id': text('version of the system'),
          'variant-id': text('variant of the system'),
          'kernel-version': text('version of its kernel'),
          machine: text('architecture'),
          id: text('short name of the system'),
        },
        'as guest-get-osinfo tells it; what the guest does not know is empty',
      ),
    ),
    file_systems: Type.Array(
      part({
        name: text('the device'),
        mountpoint: text('where it is mounted'),
        type: text('ext4, xfs, NTFS, …'),
        used_bytes: described(Bytes, 'bytes that are taken'),
        total_bytes: described(Bytes, 'bytes that it has'),
      }),
      { description: 'its mounted file systems' },
    ),
    users: Type.Array(
      part({
        name: text('name of the user'),
        login_time: nullable(described(Time, 'when they logged in')),
      }),
      { description: 'who is logged in' },
    ),
    frozen_since: nullable(
      described(Time, 'its file systems are frozen; they are thawed after a limit; null: they are not'),
    ),
  },
);

/** Of the names of commands. */
export const COMMAND_PATTERN = '^[A-Za-z_][A-Za-z0-9_.-]{0,63}$';

export const AvailableCommandsSchema = record(
  'AvailableGuestCommands',
  {
    description: 'What the agent of a guest can do',
    example: { emu_available_cmds: ['guest-ping', 'guest-exec', 'guest-get-osinfo'] },
  },
  {
    emu_available_cmds: texts('names of its commands'),
    qemu_available_cmds: Type.Optional(texts('the same, when api.emulator_name is set')),
  },
);

export const GuestCommandBody = body(
  {
    emu_cmd: Type.String({ pattern: COMMAND_PATTERN, description: 'the command; qemu_cmd may stand for it' }),
    qemu_cmd: Type.Optional(
      Type.String({ pattern: COMMAND_PATTERN, description: 'another name of emu_cmd' }),
    ),
    fargs: Type.Optional(
      Type.Unsafe<Record<string, unknown>>({
        type: 'object',
        additionalProperties: true,
        description: 'the arguments, as the guest agent names them; without any: {}',
      }),
    ),
    timeout: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: MAX_TIMEOUT_S,
        default: DEFAULT_TIMEOUT_S,
        description: 'seconds; for guest-exec the time to wait for the end of the program',
      }),
    ),
  },
  { emu_cmd: 'guest-exec', fargs: { path: '/bin/uname', arg: ['-r'] } },
);

export const GuestCommandAnswer = Type.Unsafe<Record<string, unknown>>({
  type: 'object',
  minProperties: 1,
  maxProperties: 1,
  additionalProperties: true,
  examples: [{ 'guest-exec': { exitcode: 0, 'out-data': '6.1.0-18-amd64\n', exited: true } }],
  description:
    'One key, the name of the command; its value is the result. guest-exec: exitcode (128 + n after a signal n), out-data, exited, and where they apply signal, err-data, pid, out-encoding and err-encoding (base64), out-truncated, err-truncated. guest-get-time: nanoseconds, a 64-bit integer.',
});

const exampleKey = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvJ…0 alice@example.org';

export const SshKeysSchema = record(
  'SshKeys',
  { description: 'Who may log in by key', example: { ssh_user: 'root', keys: [exampleKey] } },
  { ssh_user: text('name of the user of the guest'), keys: texts('lines of authorized_keys') },
);

const Method = oneOf(['agent', 'offline'] as const, {
  description: 'offline: the VM is off, its disk was changed',
});
const Restarted = truth('the guest was restarted');

export const ChangedSshKeysSchema = record(
  'ChangedSshKeys',
  { description: 'The keys as they are now', example: { keys: [exampleKey], method: 'agent' } },
  { keys: texts('all keys of the user now'), method: Method },
);

export const HostnameSetSchema = record(
  'HostnameSet',
  {
    description: 'The host name as it is now',
    example: { hostname: 'web-1', method: 'agent', restarted: false },
  },
  { hostname: text('host name of the guest'), method: Method, restarted: Restarted },
);

export const DirectoryJoinedSchema = record(
  'DirectoryJoined',
  {
    description: 'The directory domain that the guest is in now',
    example: { domain: 'corp.example.org', computer_name: 'WEB-1', restarted: true, warnings: [] },
  },
  {
    domain: text('DNS name of the directory'),
    computer_name: text('name of the guest there'),
    restarted: Restarted,
    warnings: texts('what the caller should know'),
    installed: Type.Optional(
      texts(
        'packages that were installed in the guest for the join, or came in another version with them; absent from nodes of earlier versions',
      ),
    ),
  },
);

export const DirectoryLeftSchema = record(
  'DirectoryLeft',
  {
    description: 'The directory domain that the guest is in no more',
    example: { domain: 'corp.example.org', restarted: true },
  },
  { domain: text('DNS name of the directory'), restarted: Restarted },
);

export const SysprepRunSchema = record(
  'SysprepRun',
  { description: 'Sysprep did its work', example: { action: 'shutdown' } },
  { action: text('what the guest does after it') },
);

export const GuestPreparedSchema = record(
  'GuestPrepared',
  { description: 'The disk was prepared', example: { operations: ['machine-id', 'ssh-hostkeys'] } },
  { operations: texts('what was done to it') },
);

export const PreparationsSchema = record(
  'GuestPreparations',
  {
    description: 'What can be done to the disk of a guest that is off',
    example: {
      operations: [{ name: 'machine-id', default: true, description: 'Remove the local machine ID' }],
    },
  },
  {
    operations: Type.Array(
      part({
        name: text('of virt-sysprep, as prepare takes it'),
        default: truth('done when prepare names no operations'),
        description: text('what it does'),
      }),
      { description: 'operations of virt-sysprep' },
    ),
  },
);

export const GuestToolsSchema = record(
  'GuestTools',
  {
    description: 'The drive of the guest tools image',
    example: { target_dev: 'sda', path: '/usr/share/virtkeep/guest-tools.iso' },
  },
  {
    target_dev: text('target of the drive'),
    path: Type.Optional(text('of the image, on the node')),
  },
);

/** 1 and 0 as the API family writes it, or a boolean. */
export const RestartFlag = Type.Unsafe<boolean | 0 | 1>({
  enum: [1, 0, true, false],
  default: 1,
  description: 'restart the guest where it takes effect only then',
});

export const SshUser = Type.String({
  minLength: 1,
  maxLength: 256,
  description: 'name of a user of the guest',
});
