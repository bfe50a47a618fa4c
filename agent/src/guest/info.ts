/**
 * What a guest reports about itself. A guest may say anything: what is not well-formed is left out, lists and texts are cut, and
 * the rest can be sent on.
 */
import { isIP } from 'node:net';
import type { Domain } from '@virtkeep/node-libvirt';
import { hasKey } from '@virtkeep/shared/errors';
import { integerOf } from '@virtkeep/shared/exact-json';
import type { GuestFileSystem, GuestInfo, GuestUser } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { osInfoOf } from './os.ts';
import { type CommandOptions, guestCommand } from './session.ts';

export interface OfferedCommand {
  name: string;
  enabled: boolean;
  /** It answers when it succeeded. */
  successResponse: boolean;
}

export type ReportedInfo = Omit<GuestInfo, 'refreshed' | 'frozenSince'>;

const MAX_ITEMS = 256;
const MAX_TEXT = 256;
const MAX_COMMANDS = 1_000;
const MAX_BYTES = 2n ** 63n - 1n;
/** The end of the year 9999. */
const MAX_SECONDS = 253_402_300_799;

type Answer = Record<string, unknown>;
const recordOf = (value: unknown): Answer =>
  typeof value === 'object' && value !== null ? (value as Answer) : {};
const listOf = (value: unknown, most = MAX_ITEMS): Answer[] =>
  Array.isArray(value) ? value.slice(0, most).map(recordOf) : [];
/** Control characters, and marks that turn the direction of what follows, are nobody's name. */
const textOf = (value: unknown): string =>
  typeof value === 'string' ? value.slice(0, MAX_TEXT).replaceAll(/[\p{Cc}\p{Cf}\p{Cs}]/gu, '') : '';
const bytesOf = (value: unknown): bigint => {
  const bytes = integerOf(typeof value === 'number' ? Math.floor(value) : value) ?? 0n;
  return bytes < 0n ? 0n : bytes > MAX_BYTES ? MAX_BYTES : bytes;
};
const timeOf = (value: unknown): Date | undefined =>
  typeof value === 'number' && value >= 0 && value <= MAX_SECONDS ? new Date(value * 1000) : undefined;

/** The commands that the guest's agent offers now, enabled or not. @throws VirtkeepError as `guestCommand` */
export async function offeredCommands(
  domain: Domain,
  options: CommandOptions = {},
): Promise<{ version: string; commands: OfferedCommand[] }> {
  const answer = recordOf(await guestCommand(domain, 'guest-info', {}, options));
  const commands = listOf(answer.supported_commands, MAX_COMMANDS).map(command => ({
    name: textOf(command.name),
    enabled: command.enabled === true,
    successResponse: command['success-response'] !== false,
  }));
  return { version: textOf(answer.version), commands: commands.filter(({ name }) => name !== '') };
}

/**
 * Asks a guest for a full report about itself; what its agent does not offer stays empty. A frozen guest reports only that it is
 * frozen.
 * @throws VirtkeepError guest_off, guest_no_channel, guest_agent_disconnected, guest_agent_silent, guest_agent_busy and
 *   what else keeps it from answering
 */
export async function askInfo(
  domain: Domain,
  options: CommandOptions = {},
): Promise<{ isFrozen: boolean; info: Partial<ReportedInfo> }> {
  const { version, commands } = await offeredCommands(domain, options);
  const offered = new Set(commands.filter(({ enabled }) => enabled).map(({ name }) => name));
  const ask = async (command: string) => {
    if (!offered.has(command)) return undefined;
    return guestCommand(domain, command, {}, options).catch(leaveOut);
  };
  const isFrozen = (await ask('guest-fsfreeze-status')) === 'frozen';
  if (isFrozen) return { isFrozen, info: { agentVersion: version } };
  const hostname = textOf(recordOf(await ask('guest-get-host-name'))['host-name']);
  const addresses = addressesOf(await ask('guest-network-get-interfaces'));
  const os = systemOf(await ask('guest-get-osinfo'));
  const fileSystems = fileSystemsOf(await ask('guest-get-fsinfo'));
  const users = usersOf(await ask('guest-get-users'));
  return { isFrozen, info: { agentVersion: version, hostname, ...addresses, os, fileSystems, users } };
}

/** When one question fails, the answers to the others still count. */
function leaveOut(error: unknown): undefined {
  const isOwn = hasKey(
    error,
    'guest_agent_failed',
    'guest_command_unknown',
    'guest_command_disabled',
    'guest_frozen',
  );
  if (!isOwn) throw error;
}

/** The addresses by which the guest may be reached: neither loopback nor link-local ones. */
export function addressesOf(answer: unknown): Pick<ReportedInfo, 'ipv4' | 'ipv6'> {
  const found = listOf(answer).flatMap(device => listOf(device['ip-addresses']));
  const all = (type: string) =>
    found
      .filter(address => address['ip-address-type'] === type)
      .map(address => textOf(address['ip-address']));
  const ipv4 = all('ipv4').filter(address => isIP(address) === 4 && !/^(127|169\.254)\./.test(address));
  const ipv6 = all('ipv6').filter(address => isIP(address) === 6 && !/^(::1$|fe[89ab])/i.test(address));
  return { ipv4: ipv4.slice(0, MAX_ITEMS), ipv6: ipv6.slice(0, MAX_ITEMS) };
}

export function systemOf(answer: unknown): ReportedInfo['os'] {
  if (typeof answer !== 'object' || answer === null) return undefined;
  const info = osInfoOf(answer);
  const field = (value: string | undefined) => textOf(value);
  return {
    id: field(info.id),
    name: field(info.name),
    prettyName: field(info.prettyName),
    version: field(info.version),
    versionId: field(info.versionId),
    variant: field(info.variant),
    variantId: field(info.variantId),
    machine: field(info.machine),
    kernelRelease: field(info.kernelRelease),
    kernelVersion: field(info.kernelVersion),
  };
}

export function fileSystemsOf(answer: unknown): GuestFileSystem[] {
  return listOf(answer).map(fileSystem => ({
    name: textOf(fileSystem.name),
    mountpoint: textOf(fileSystem.mountpoint),
    type: textOf(fileSystem.type),
    usedBytes: bytesOf(fileSystem['used-bytes']),
    totalBytes: bytesOf(fileSystem['total-bytes']),
  }));
}

export function usersOf(answer: unknown): GuestUser[] {
  return listOf(answer).flatMap(user => {
    const name = textOf(user.user);
    return name === '' ? [] : [{ name, loginTime: timeOf(user['login-time']) }];
  });
}
