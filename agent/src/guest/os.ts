/** Which system runs in a guest, by guest-get-osinfo. */
import type { Domain } from '@virtkeep/node-libvirt';
import { hasKey } from '@virtkeep/shared/errors';
import { ExpiringMap } from '@virtkeep/shared/expiring-map';
import { guestCommand } from './session.ts';

/** As guest-get-osinfo tells it; what the guest does not know is absent. */
export interface OsInfo {
  id?: string;
  name?: string;
  prettyName?: string;
  version?: string;
  versionId?: string;
  variant?: string;
  variantId?: string;
  machine?: string;
  kernelRelease?: string;
  kernelVersion?: string;
}

/** By the agent's names. */
const FIELDS: readonly (readonly [keyof OsInfo, string])[] = [
  ['id', 'id'],
  ['name', 'name'],
  ['prettyName', 'pretty-name'],
  ['version', 'version'],
  ['versionId', 'version-id'],
  ['variant', 'variant'],
  ['variantId', 'variant-id'],
  ['machine', 'machine'],
  ['kernelRelease', 'kernel-release'],
  ['kernelVersion', 'kernel-version'],
];

/** A guest seldom gets another system; a new one is noticed after this time. */
const KEPT_MS = 60_000;
const MAX_KEPT = 2_000;
const kept = new ExpiringMap<OsInfo>({ lifeMs: KEPT_MS, maxEntries: MAX_KEPT });

/** The system of a guest, asked once a minute at most. @throws VirtkeepError as `guestCommand` */
export async function osInfo(domain: Domain, signal?: AbortSignal): Promise<OsInfo> {
  const known = kept.get(domain.uuid);
  if (known) return known;
  const info = osInfoOf(await guestCommand(domain, 'guest-get-osinfo', {}, { signal }));
  kept.set(domain.uuid, info);
  return info;
}

/** An answer of guest-get-osinfo with all that the specification (2.6) says is in it: what the guest does not know is empty. */
export function wholeOsInfo(answer: unknown): unknown {
  if (typeof answer !== 'object' || answer === null) return answer;
  return { ...Object.fromEntries(FIELDS.map(([, name]) => [name, ''])), ...answer };
}

/** Reads an answer of guest-get-osinfo; what is not a text in it is left out. */
export function osInfoOf(answer: unknown): OsInfo {
  const record = (typeof answer === 'object' && answer !== null ? answer : {}) as Record<string, unknown>;
  const texts = FIELDS.flatMap(([key, name]) => {
    const value = record[name];
    return typeof value === 'string' && value !== '' ? [[key, value] as const] : [];
  });
  return Object.fromEntries(texts);
}

export const isWindows = ({ id }: OsInfo): boolean => id === 'mswindows';

/**
 * Whether programs are started as on Windows. When a guest does not report its system (an old agent, or the command is
 * filtered), the program's path decides.
 * @throws VirtkeepError as `guestCommand`, but not for that
 */
export async function startsAsWindows(domain: Domain, path: string, signal?: AbortSignal): Promise<boolean> {
  try {
    const info = await osInfo(domain, signal);
    if (info.id !== undefined) return isWindows(info);
  } catch (error) {
    if (!hasKey(error, 'guest_command_unknown', 'guest_command_disabled', 'guest_agent_failed')) throw error;
  }
  return /^[A-Za-z]:|\\|\.(exe|bat|cmd)$/i.test(path);
}
