/** Who uses files, devices and VMs on this node: what another node's agent wants to know. Looked up now, never cached. */
import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import type { Domain, Libvirt } from '@virtkeep/node-libvirt';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { mapLimited } from '@virtkeep/shared/limit';
import type { Claims } from '../../claims.ts';
import { definitionsOf, isRunning, referredTo } from '../../images/index.ts';
import { fromLibvirt, isNoDomain } from '../../libvirt/errors.ts';
import type { Thing, Use } from '../../other-nodes.ts';
import { type PoolRecord, pathOf } from '../../pools/index.ts';
import { deviceKeysOf, isUnknownDevice, mayBeBlockDevice } from './device-keys.ts';

export interface FindUsesDependencies {
  libvirt(): Libvirt;
  pools(signal: AbortSignal): Promise<PoolRecord[]>;
  claims: Claims;
  /** A thin clone of the domain. */
  cloneOf(domainId: string): Promise<{ id: string; name: string } | undefined>;
}

export type LocalUse = Omit<Use, 'nodeName'>;

/** Null: nobody here uses it; `unsure`: why that cannot be told. */
export type LocalAnswer = LocalUse | { unsure: string } | null;

/** Domains read at a time. */
const WIDTH = 8;

/**
 * One answer per thing.
 * @throws VirtkeepError libvirt_unreachable, libvirt_failed, pool_not_found
 */
export async function findUses(
  dependencies: FindUsesDependencies,
  things: readonly Thing[],
  signal: AbortSignal,
): Promise<LocalAnswer[]> {
  try {
    return await find(dependencies, things, signal);
  } catch (error) {
    throwIfAborted(signal);
    throw fromLibvirt(error, 'virConnectListAllDomains');
  }
}

async function find(
  dependencies: FindUsesDependencies,
  things: readonly Thing[],
  signal: AbortSignal,
): Promise<LocalAnswer[]> {
  const libvirt = dependencies.libvirt();
  const inDefinitions = things.some(thing => thing.kind !== 'domain');
  const pools = inDefinitions ? await dependencies.pools(signal) : [];
  const { used, unsure, unread } = inDefinitions ? await usesByDomains(libvirt, pools, signal) : NOTHING;
  return mapLimited(things, WIDTH, async thing => {
    throwIfAborted(signal);
    const use = (await useOf(dependencies, thing, used, pools)) ?? claimed(dependencies.claims, thing);
    if (use !== null || thing.kind !== 'device') return use;
    const reason = unread ?? (mayBeBlockDevice(thing.key) ? unsure : undefined);
    return reason === undefined ? null : { unsure: reason };
  });
}

async function useOf(
  dependencies: FindUsesDependencies,
  thing: Thing,
  used: ReadonlyMap<string, LocalUse>,
  pools: readonly PoolRecord[],
): Promise<LocalUse | undefined> {
  if (thing.kind === 'device') return used.get(deviceName(thing.key));
  if (thing.kind === 'file') {
    const path = pathInPool(thing, pools);
    return used.get(path) ?? used.get(await realpath(path).catch(() => path));
  }
  return (await domainHere(dependencies.libvirt(), thing.id)) ?? clone(dependencies, thing.id);
}

function pathInPool(
  { poolId, path }: { poolId: string; path: string },
  pools: readonly PoolRecord[],
): string {
  const pool = pools.find(candidate => candidate.id === poolId);
  if (!pool?.path) throw new VirtkeepError('pool_not_found', { id: poolId });
  return join(pool.path, path);
}

async function domainHere(libvirt: Libvirt, id: string): Promise<LocalUse | undefined> {
  try {
    const domain = await libvirt.domainByUuid(id);
    return { domainId: id, domainName: domain.name, active: await domain.isActive() };
  } catch (error) {
    if (isNoDomain(error)) return undefined;
    throw error;
  }
}

async function clone({ cloneOf }: FindUsesDependencies, id: string): Promise<LocalUse | undefined> {
  const found = await cloneOf(id);
  return found && { domainId: found.id, domainName: found.name };
}

function claimed(claims: Claims, thing: Thing): LocalUse | null {
  const by = claims.by(thing);
  return by ? { ...by } : null;
}

interface UsesByDomains {
  /** By whom, by real paths of files and names of devices. */
  used: Map<string, LocalUse>;
  /** Why a device may be used that is not named. */
  unsure?: string;
  /** Why any device may be used. */
  unread?: string;
}

const NOTHING: UsesByDomains = { used: new Map() };

async function usesByDomains(
  libvirt: Libvirt,
  pools: readonly PoolRecord[],
  signal: AbortSignal,
): Promise<UsesByDomains> {
  const uses: UsesByDomains = { used: new Map() };
  await mapLimited(await libvirt.domains(), WIDTH, async domain => {
    throwIfAborted(signal);
    const isActive = await isRunning(domain);
    const { names, present, away, isUnread } = await namesOf(domain, pools);
    for (const name of names) {
      const active = isActive && present.has(name);
      if (active || !uses.used.get(name)?.active)
        uses.used.set(name, { domainId: domain.uuid, domainName: domain.name, active });
    }
    if (away !== undefined) uses.unsure = `its VM ${domain.name} names ${away}, which is away`;
    if (isUnread) uses.unread = `the definition of its VM ${domain.name} cannot be read`;
  });
  return uses;
}

interface DomainNames {
  names: Set<string>;
  /** The files that it has as it runs or starts next. */
  present: ReadonlySet<string>;
  /** A path that may be any device. */
  away: string | undefined;
  isUnread: boolean;
}

/** What a domain's definitions, live and inactive ones and those in its saved states, stand on. */
async function namesOf(domain: Domain, pools: readonly PoolRecord[]): Promise<DomainNames> {
  let away: string | undefined;
  let isUnread = false;
  const definitions = await definitionsOf(domain);
  const referredIn = (isPresent: boolean) =>
    referredTo(
      definitions.filter(definition => definition.isPresent === isPresent),
      pools,
    );
  const present = await referredIn(true);
  const names = new Set([...present, ...(await referredIn(false))]);
  for (const { config, unread } of definitions) {
    isUnread ||= unread !== undefined;
    for (const disk of config?.disks ?? []) {
      const path = pathOf(disk, pools);
      if (path !== undefined) names.add(path);
      for (const key of await deviceKeysOf({ ...disk, path })) names.add(deviceName(key));
      if (await isUnknownDevice({ ...disk, path })) away = path;
    }
  }
  return { names, present, away, isUnread };
}

/** Never a path, which begins with a slash. */
const deviceName = (key: string): string => `device ${key}`;
