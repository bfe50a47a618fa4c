/** What a guest told of itself, as the REST contract tells of it. Pure. */
import { AgentState, type Domain, type GuestInfo } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';

export interface GuestInfoRecord {
  /** The guest agent is connected now; all else is what it told at `refreshed`. */
  qemu_state: boolean;
  /** Null: the guest told nothing yet. */
  refreshed: string | null;
  agent_version: string | null;
  hostname: string | null;
  ipv4: string[];
  ipv6: string[];
  os: ReturnType<typeof osRecord> | null;
  file_systems: { name: string; mountpoint: string; type: string; used_bytes: number; total_bytes: number }[];
  users: { name: string; login_time: string | null }[];
  /** Since when its file systems are frozen. */
  frozen_since: string | null;
}

/** @param isConnected the domain's node is there */
export function guestInfoRecord(
  { agentState }: Pick<Domain, 'agentState'>,
  info: GuestInfo | undefined,
  isConnected: boolean,
): GuestInfoRecord {
  return {
    qemu_state: isConnected && agentState === AgentState.CONNECTED,
    refreshed: info?.refreshed?.toISOString() ?? null,
    agent_version: info?.agentVersion || null,
    hostname: info?.hostname || null,
    ipv4: info?.ipv4 ?? [],
    ipv6: info?.ipv6 ?? [],
    os: info?.os ? osRecord(info.os) : null,
    file_systems: (info?.fileSystems ?? []).map(({ name, mountpoint, type, usedBytes, totalBytes }) => ({
      name,
      mountpoint,
      type,
      used_bytes: Number(usedBytes),
      total_bytes: Number(totalBytes),
    })),
    users: (info?.users ?? []).map(({ name, loginTime }) => ({
      name,
      login_time: loginTime?.toISOString() ?? null,
    })),
    frozen_since: info?.frozenSince?.toISOString() ?? null,
  };
}

/** With the names of guest-get-osinfo (specification 2.6). */
function osRecord(os: NonNullable<GuestInfo['os']>) {
  return {
    name: os.name,
    'kernel-release': os.kernelRelease,
    version: os.version,
    variant: os.variant,
    'pretty-name': os.prettyName,
    'version-id': os.versionId,
    'variant-id': os.variantId,
    'kernel-version': os.kernelVersion,
    machine: os.machine,
    id: os.id,
  };
}

/** Systems whose guest agent says its name and that run no Linux. */
const OTHER_SYSTEMS = /bsd|dragonfly|solaris|sunos|darwin|macos|haiku/i;

/** The operating system by the definition; by what the guest told, in the same words, when the definition does not say. */
export function guestOs({
  osType,
  osVersion,
  guestInfo,
}: Pick<Domain, 'osType' | 'osVersion' | 'guestInfo'>): { os_type: string; os_version: string } {
  const { id = '', versionId = '' } = guestInfo?.os ?? {};
  const isDefined = osVersion !== '' || !['', 'Other'].includes(osType);
  if (isDefined || id === '') return { os_type: osType || 'Other', os_version: osVersion };
  const isWindows = id === 'mswindows';
  const name = isWindows ? 'win' : id;
  return {
    os_type: isWindows ? 'Windows' : OTHER_SYSTEMS.test(id) ? 'Other' : 'Linux',
    os_version: versionId === '' ? name : `${name}/${versionId}`,
  };
}

/** `guest_utils` of the domain record. Addresses of a guest that does not run would mislead. */
export function guestUtils(
  { agentState, guestInfo: info }: Pick<Domain, 'agentState' | 'guestInfo'>,
  isConnected: boolean,
  isRunning: boolean,
): { qemu_state: boolean; version: string | null; hostname: string | null; ipv4: string[] } {
  return {
    qemu_state: isConnected && agentState === AgentState.CONNECTED,
    version: info?.agentVersion || null,
    hostname: info?.hostname || null,
    ipv4: isRunning ? (info?.ipv4 ?? []) : [],
  };
}
