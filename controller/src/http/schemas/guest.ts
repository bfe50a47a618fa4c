/** Commands of guest agents, what guests tell of themselves, and the results of operations inside of them. */
import Type from 'typebox';
import { DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S } from '../../services/guests/guests.ts';
import { Bytes, nullable, oneOf, record, Time } from './common.ts';

const closed = { additionalProperties: false } as const;

export const GuestInfoSchema = record('GuestInfo', {
  qemu_state: Type.Boolean({ description: 'the guest agent is connected now' }),
  refreshed: nullable(Type.String({ ...Time, description: 'when the guest told the rest; null: never' })),
  agent_version: nullable(Type.String()),
  hostname: nullable(Type.String()),
  ipv4: Type.Array(Type.String()),
  ipv6: Type.Array(Type.String()),
  os: nullable(
    Type.Object(
      {
        name: Type.String(),
        'kernel-release': Type.String(),
        version: Type.String(),
        variant: Type.String(),
        'pretty-name': Type.String(),
        'version-id': Type.String(),
        'variant-id': Type.String(),
        'kernel-version': Type.String(),
        machine: Type.String(),
        id: Type.String(),
      },
      { ...closed, description: 'as guest-get-osinfo tells it; what the guest does not know is empty' },
    ),
  ),
  file_systems: Type.Array(
    Type.Object(
      {
        name: Type.String(),
        mountpoint: Type.String(),
        type: Type.String(),
        used_bytes: Bytes,
        total_bytes: Bytes,
      },
      closed,
    ),
  ),
  users: Type.Array(Type.Object({ name: Type.String(), login_time: nullable(Time) }, closed)),
  frozen_since: nullable(
    Type.String({ ...Time, description: 'its file systems are frozen; they are thawed after a limit' }),
  ),
});

/** Of the names of commands. */
export const COMMAND_PATTERN = '^[A-Za-z_][A-Za-z0-9_.-]{0,63}$';
const Commands = Type.Array(Type.String());

export const AvailableCommandsSchema = record('AvailableGuestCommands', {
  emu_available_cmds: Commands,
  qemu_available_cmds: Type.Optional(
    Type.Array(Type.String(), { description: 'the same, when api.emulator_name is set' }),
  ),
});

export const GuestCommandBody = Type.Object(
  {
    emu_cmd: Type.Optional(Type.String({ pattern: COMMAND_PATTERN, description: 'required, or qemu_cmd' })),
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
  closed,
);

export const GuestCommandAnswer = Type.Unsafe<Record<string, unknown>>({
  type: 'object',
  minProperties: 1,
  maxProperties: 1,
  additionalProperties: true,
  description:
    'One key, the name of the command; its value is the result. guest-exec: exitcode (128 + n after a signal n), out-data, exited, and where they apply signal, err-data, pid, out-encoding and err-encoding (base64), out-truncated, err-truncated. guest-get-time: nanoseconds, a 64-bit integer.',
});

export const SshKeysSchema = record('SshKeys', {
  ssh_user: Type.String(),
  keys: Type.Array(Type.String(), { description: 'lines of authorized_keys' }),
});

const Method = oneOf(['agent', 'offline'] as const, {
  description: 'offline: the VM is off, its disk was changed',
});
const Restarted = Type.Boolean({ description: 'the guest was restarted' });

export const ChangedSshKeysSchema = record('ChangedSshKeys', {
  keys: Type.Array(Type.String(), { description: 'all keys of the user now' }),
  method: Method,
});

export const HostnameSetSchema = record('HostnameSet', {
  hostname: Type.String(),
  method: Method,
  restarted: Restarted,
});

export const DirectoryJoinedSchema = record('DirectoryJoined', {
  domain: Type.String(),
  computer_name: Type.String(),
  restarted: Restarted,
  warnings: Type.Array(Type.String()),
  installed: Type.Optional(
    Type.Array(Type.String(), {
      description:
        'packages that were installed in the guest for the join, or came in another version with them; absent from nodes of earlier versions',
    }),
  ),
});

export const DirectoryLeftSchema = record('DirectoryLeft', { domain: Type.String(), restarted: Restarted });

export const SysprepRunSchema = record('SysprepRun', { action: Type.String() });

export const GuestPreparedSchema = record('GuestPrepared', { operations: Type.Array(Type.String()) });

export const PreparationsSchema = record('GuestPreparations', {
  operations: Type.Array(
    Type.Object(
      {
        name: Type.String({ description: 'of virt-sysprep, as prepare takes it' }),
        default: Type.Boolean({ description: 'done when prepare names no operations' }),
        description: Type.String(),
      },
      closed,
    ),
  ),
});

export const GuestToolsSchema = record('GuestTools', {
  target_dev: Type.String(),
  path: Type.Optional(Type.String({ description: 'of the image, on the node' })),
});

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
