/** Whether image files may be taken away: who uses them, on this node and on others. */
import { realpath } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import type { Libvirt } from '@virtkeep/node-libvirt';
import { errnoOf, fromIoError } from '@virtkeep/shared/errors';
import type { Answer, OtherNodes, Thing } from '../other-nodes.ts';
import { isShared, type PoolRecord, poolOfPath } from '../pools/index.ts';
import { childrenOf } from './children.ts';
import { filesOfNode, type NodeFiles } from './node-files.ts';

export interface ImageDependencies {
  libvirt(): Libvirt;
  /** The node's pools as they are now. */
  pools(signal: AbortSignal): Promise<PoolRecord[]>;
  otherNodes: OtherNodes;
}

export interface ImageQuestion {
  /**
   * The domain to which the files belong or belonged. A file that its saved states name as theirs (a layer, a memory file), or
   * that it has noted for a merge, is not in use by that. The same domain on another node is a use, unless it runs here.
   */
  ownerId?: string;
  /**
   * Domains that give the files up: no use of theirs counts, nor that one of their images stands on another, unless the files
   * are replaced.
   */
  leaving?: readonly string[];
  /** Files that are given up with them, also those whose domain is gone by now. Real paths. */
  leavingFiles?: readonly string[];
  /** The files get another content, which no image that stays may stand on: only `leavingFiles` may, whoever has others. */
  replaced?: boolean;
  /** Files that may stand on others: new images that are to take a place among them. */
  arriving?: readonly string[];
  /**
   * What to do without an answer of the other nodes. `leave`: the files stay; the default. `take`: this operation created the
   * files and nobody else has heard of them, or they were proven free before; a use that a node reports still counts. `fresh`:
   * this operation created them for `ownerId`, so nobody else can have them while that domain runs here.
   */
  unanswered?: 'leave' | 'take' | 'fresh';
  /** No other node has ever heard of them: none is asked. */
  alone?: boolean;
}

export type Verdict = { kind: 'free' } | { kind: 'used'; by: string } | { kind: 'unknown'; reason: string };

const FREE: Verdict = { kind: 'free' };

/**
 * Who uses each of the files; what stands on another of them does not count as its use.
 * @param paths real ones, of files that exist
 * @throws LibvirtError; VirtkeepError io_failed
 */
export async function judgeImages(
  dependencies: ImageDependencies,
  paths: readonly string[],
  question: ImageQuestion,
  signal: AbortSignal,
): Promise<Map<string, Verdict>> {
  const verdicts = new Map<string, Verdict>();
  if (paths.length === 0) return verdicts;
  const pools = await withRealPaths(await dependencies.pools(signal));
  const node = await filesOfNode(dependencies.libvirt(), pools, question.ownerId);
  const leaving = new Set(question.leaving);
  const excluded = new Set([...paths, ...(question.arriving ?? [])]);
  const homes = paths.flatMap(path => poolOfPath(path, pools)?.path ?? []);
  const children = await childrenOf(paths, homes);
  for (const path of paths) {
    const user = node.users.get(path)?.find(({ domainId }) => !leaving.has(domainId));
    const child = children
      .get(path)
      ?.find(file => !excluded.has(file) && !isLeaving(node, file, leaving, question));
    if (user) verdicts.set(path, { kind: 'used', by: `the domain ${user.name}` });
    else if (child) verdicts.set(path, { kind: 'used', by: `${child}, which stands on it` });
    else verdicts.set(path, FREE);
  }
  if (question.alone) return verdicts;
  const free = paths.filter(path => verdicts.get(path) === FREE);
  for (const [path, verdict] of await judgeElsewhere(dependencies, free, { pools, node, question }, signal))
    verdicts.set(path, verdict);
  return verdicts;
}

/** An image of the domains that give theirs up, and of nobody else. */
function isLeaving(
  { users }: NodeFiles,
  file: string,
  leaving: ReadonlySet<string>,
  { leavingFiles = [], replaced = false }: ImageQuestion,
): boolean {
  const found = users.get(file) ?? [];
  const isGivenUp = leavingFiles.includes(file) || (!replaced && found.length > 0);
  return isGivenUp && found.every(({ domainId }) => leaving.has(domainId));
}

/** What this node knows before it asks the other nodes. */
interface Elsewhere {
  pools: readonly PoolRecord[];
  node: NodeFiles;
  question: ImageQuestion;
}

/**
 * Asks about files that other nodes can reach. A pool that looks local may be one that another node has, too: then an answer
 * of that node counts, and its silence does not.
 */
async function judgeElsewhere(
  { otherNodes }: ImageDependencies,
  paths: readonly string[],
  { pools, node: { isOwnerRunning }, question: { ownerId, unanswered = 'leave' } }: Elsewhere,
  signal: AbortSignal,
): Promise<Map<string, Verdict>> {
  const verdicts = new Map<string, Verdict>();
  const things: Thing[] = [];
  const candidates: { path: string; shared: boolean }[] = [];
  for (const path of paths) {
    const pool = poolOfPath(path, pools);
    const shared = await isShared(path, pool);
    if (!pool || pool.outside) {
      const reason = 'it is in no data pool that the other nodes know';
      if (shared) verdicts.set(path, { kind: 'unknown', reason });
      continue;
    }
    candidates.push({ path, shared });
    things.push({ kind: 'file', poolId: pool.id, path: relative(pool.path!, path) });
  }
  if (candidates.length > 0) {
    // of two nodes that have a domain, the one on which it runs is its node; the copy on the other counts by the files that it names
    const isElsewhere = ownerId !== undefined && !isOwnerRunning;
    const isOwnerAsked = isElsewhere && candidates.some(({ shared }) => shared);
    const owner: Thing[] = isOwnerAsked ? [{ kind: 'domain', id: ownerId }] : [];
    const answers = await otherNodes.whoUses([...things, ...owner], signal);
    for (const [index, { path, shared }] of candidates.entries()) {
      const verdict = together([answers[index], ...(shared ? answers.slice(things.length) : [])]);
      verdicts.set(path, verdict.kind === 'unknown' && !shared ? FREE : verdict);
    }
  }
  const isTaken = unanswered === 'take' || (unanswered === 'fresh' && isOwnerRunning);
  if (isTaken) for (const [path, { kind }] of verdicts) if (kind === 'unknown') verdicts.set(path, FREE);
  return verdicts;
}

/** One use makes it used; without a use, one missing answer makes it unknown. */
function together(answers: readonly (Answer | undefined)[]): Verdict {
  let verdict: Verdict = FREE;
  for (const answer of answers) {
    if (answer?.kind === 'used') {
      const { domainName, nodeName } = answer.by;
      return { kind: 'used', by: `the domain ${domainName} on the node ${nodeName}` };
    }
    if (answer?.kind !== 'unused') verdict = answer ?? { kind: 'unknown', reason: 'it was not answered' };
  }
  return verdict;
}

/** Pools by the directories without links on the way to them. */
export async function withRealPaths(pools: readonly PoolRecord[]): Promise<PoolRecord[]> {
  const found: PoolRecord[] = [];
  for (const pool of pools) {
    const path = pool.path === undefined ? undefined : await realpath(pool.path).catch(() => pool.path);
    found.push(path === undefined ? pool : { ...pool, path });
  }
  return found;
}

/** The file without links on the way to it; null when it is not there. @throws VirtkeepError io_failed */
export async function realFile(path: string): Promise<string | null> {
  try {
    return await realpath(path);
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw fromIoError(error, 'looking at', path);
  }
  // a link to nowhere is a file, too
  const directory = await realpath(dirname(path)).catch(() => null);
  return directory === null ? null : join(directory, basename(path));
}
