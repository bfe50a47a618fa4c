/**
 * Which images of an archive without manifest make up which disk: told by the names of the disks' files in the definition, by what each
 * image's header says it stands on, and by the members' own names; pure. Paths are those of another machine, so names count alone.
 * What is not told without doubt is refused: a disk out of the wrong layers is worse than none.
 */
import { basename, dirname, resolve } from 'node:path';
import { isStateOverlay } from '../../snapshots/index.ts';

/** An image of the archive, as its own header describes it. */
export interface ForeignImage {
  member: string;
  virtualSize: number;
  /** What it stands on as the header says it, and that as a path; null when it stands on nothing. */
  backing: { name: string; path: string | undefined; format: string | undefined } | null;
  /** Why it can be no layer of a disk. */
  fault?: string;
}

/** A disk of the definition that a file of the archive should hold. */
export interface ExpectedDisk {
  target: string;
  /** Its active file on the other machine. */
  path: string;
  /** How many files it consists of, when the definition says it. */
  files: number | undefined;
}

export interface ForeignLayer {
  image: ForeignImage;
  formerPath: string | null;
}

export interface ForeignChain {
  target: string;
  /** Bottom to top. */
  layers: ForeignLayer[];
  /** What the lowest stands on, when that is no image of the archive. */
  outside: { path: string; format: string } | null;
}

export interface ForeignChains {
  chains: ForeignChain[];
  /** Disks that the archive has no image of. */
  missing: ExpectedDisk[];
  /** Images of no disk. */
  unused: string[];
  /** There is one disk and one image, and their names differ. */
  isAssumed: boolean;
}

export interface ChainQuestion {
  images: readonly ForeignImage[];
  disks: readonly ExpectedDisk[];
  /** By member the path that its file had, when a saved state says it. */
  formerPaths: ReadonlyMap<string, string>;
  /** All files that saved states say they made: none of them is the first of a disk. */
  overlayPaths: ReadonlySet<string>;
  /** The archive has configurations of several states: what was merged between them makes headers of before untrue. */
  hasSeveralStates: boolean;
}

/** Why it cannot be told, as a sentence without its full stop. */
export class UnclearChains extends Error {}

/** @throws UnclearChains */
export function resolveChains(question: ChainQuestion): ForeignChains {
  const { images, disks, hasSeveralStates } = question;
  const find = finderOf(question);
  const below = new Map(images.map(image => [image, belowOf(image, find, question.overlayPaths)]));
  const named = disks.map(disk => ({ disk, top: find.byPath(disk.path) }));
  const tops = named.some(({ top }) => top !== undefined) ? named : assumed(question, below);
  const isAssumed = tops !== named;
  if (hasSeveralStates) refuseForks(below);
  const owners = new Map<ForeignImage, string>();
  const chains: ForeignChain[] = [];
  for (const { disk, top } of tops) {
    if (top === undefined) continue;
    if (hasSeveralStates) refuseCovered(disk, top, below);
    const chain = chainOf(disk, top, below, question.formerPaths);
    for (const { image } of chain.layers) claim(owners, image, disk.target);
    chains.push(chain);
  }
  return {
    chains,
    missing: tops.filter(({ top }) => top === undefined).map(({ disk }) => disk),
    unused: images.filter(image => !owners.has(image)).map(({ member }) => member),
    isAssumed,
  };
}

type Below = ReadonlyMap<ForeignImage, ForeignImage | null>;

interface Finder {
  byPath(path: string): ForeignImage | undefined;
  byMember(member: string): ForeignImage | undefined;
  readonly images: readonly ForeignImage[];
}

/**
 * By the name that a file had, or that with an image's ending. No further: `web.s1` is a layer above `web.qcow2`, and whoever took the
 * one for the other would restore a disk of long ago.
 */
function finderOf({ images, formerPaths }: ChainQuestion): Finder {
  const byName = new Map<string, ForeignImage[]>();
  for (const image of images) {
    const former = formerPaths.get(image.member);
    const names = new Set([image.member, ...(former === undefined ? [] : [basename(former)])]);
    for (const name of names) byName.set(name, [...(byName.get(name) ?? []), image]);
  }
  const one = (names: readonly string[], path: string): ForeignImage | undefined => {
    const found = [...new Set(names.flatMap(name => byName.get(name) ?? []))];
    if (found.length <= 1) return found[0];
    const text = found.map(({ member }) => `"${member}"`).join(', ');
    throw new UnclearChains(`${path} may be any of ${text}`);
  };
  return {
    images,
    byMember: member => byName.get(member)?.find(image => image.member === member),
    byPath: path => {
      const name = basename(path);
      if (name === '') return undefined;
      const stem = /^(.+)\.(?:qcow2?|img|raw)$/i.exec(name)?.[1];
      return (
        one([name], path) ??
        one([`${name}.qcow2`, `${name}.snapshot`], path) ??
        (stem === undefined ? undefined : one([`${stem}.qcow2`], path))
      );
    },
  };
}

/** What an image stands on in the archive; null: on nothing, or on what is not in it. */
function belowOf(
  image: ForeignImage,
  find: Finder,
  overlayPaths: ChainQuestion['overlayPaths'],
): ForeignImage | null {
  const { backing, member } = image;
  if (backing === null) return null;
  if (backing.path === undefined)
    throw new UnclearChains(`"${member}" stands on ${shown(backing.name)}, which is no file`);
  const isLayer = overlayPaths.has(backing.path) || isStateOverlay(backing.path);
  const found = find.byPath(backing.path) ?? (isLayer ? undefined : byStem(member, find));
  return found === image ? null : (found ?? null);
}

/**
 * A layer is called after its disk and its saved state; when it is the disk's only one, it stands on its first. Unless what it stands on
 * is plainly a layer too: then that one is missing, and the disk would be one of long ago with gaps.
 */
function byStem(member: string, find: Finder): ForeignImage | undefined {
  if (!member.endsWith('.snapshot')) return undefined;
  const [bottom, other] = find.images.filter(
    image => image.member.endsWith('.qcow2') && member.startsWith(`${stemOf(image.member)}_`),
  );
  if (bottom === undefined || other !== undefined) return undefined;
  const stem = `${stemOf(bottom.member)}_`;
  const layers = find.images.filter(image => image.member.startsWith(stem) && image !== bottom);
  return layers.length === 1 ? bottom : undefined;
}

const stemOf = (member: string): string => member.replace(/\.qcow2$/, '');

/** Of one disk and one image it is plain which belongs to which, whatever they are called. */
function assumed({ disks, images }: ChainQuestion, below: Below) {
  if (images.length === 0) return disks.map(disk => ({ disk, top: undefined }));
  const carriers = new Set(below.values());
  const tips = images.filter(image => !carriers.has(image));
  if (disks.length === 1 && tips.length === 1) {
    refuseOtherDepth(disks[0]!, tips[0]!, below);
    return [{ disk: disks[0]!, top: tips[0] }];
  }
  if (disks.length === 0) return [];
  const names = images.map(({ member }) => `"${member}"`).slice(0, 10);
  const targets = disks.map(({ target, path }) => `${target} (${shown(path)})`);
  throw new UnclearChains(
    `which of the images ${names.join(', ')} is which of the disks ${targets.join(', ')} cannot be told by their names`,
  );
}

/** @throws UnclearChains */
function refuseOtherDepth({ target, path, files }: ExpectedDisk, top: ForeignImage, below: Below): void {
  let found = 0;
  for (let at: ForeignImage | null = top; at !== null && found <= below.size; at = below.get(at) ?? null)
    found += 1;
  if (files !== undefined && files !== found)
    throw new UnclearChains(
      `${target} (${shown(path)}) consists of ${files} files, and "${top.member}" of ${found}`,
    );
}

/** @throws UnclearChains */
function refuseForks(below: Below): void {
  const above = new Map<ForeignImage, ForeignImage>();
  for (const [image, under] of below) {
    if (under === null) continue;
    const other = above.get(under);
    if (other !== undefined)
      throw new UnclearChains(
        `"${other.member}" and "${image.member}" of several states both say that they stand on "${under.member}"`,
      );
    above.set(under, image);
  }
}

/** @throws UnclearChains */
function refuseCovered({ target }: ExpectedDisk, top: ForeignImage, below: Below): void {
  for (const [image, under] of below)
    if (under === top)
      throw new UnclearChains(
        `of several states, the last names "${top.member}" as the disk ${target}, and "${image.member}" stands on it`,
      );
}

/** @throws UnclearChains */
function claim(owners: Map<ForeignImage, string>, image: ForeignImage, target: string): void {
  const owner = owners.get(image);
  if (owner !== undefined)
    throw new UnclearChains(`"${image.member}" would belong to both ${owner} and ${target}`);
  owners.set(image, target);
}

/** @throws UnclearChains */
function chainOf(
  disk: ExpectedDisk,
  top: ForeignImage,
  below: Below,
  formerPaths: ReadonlyMap<string, string>,
): ForeignChain {
  const layers: ForeignLayer[] = [];
  const seen = new Set<ForeignImage>();
  let path: string | undefined = disk.path;
  let lowest = top;
  for (let image: ForeignImage | null = top; image !== null; image = below.get(image) ?? null) {
    if (seen.has(image)) throw new UnclearChains(`"${image.member}" stands on itself, by other layers`);
    if (image.fault !== undefined) throw new UnclearChains(`"${image.member}" ${image.fault}`);
    seen.add(image);
    const former = path?.startsWith('/') ? path : (formerPaths.get(image.member) ?? null);
    layers.unshift({ image, formerPath: former });
    path = formerBelow(image, former);
    lowest = image;
  }
  const { backing } = lowest;
  const outside = backing && { path: backing.path ?? backing.name, format: backing.format ?? 'qcow2' };
  return { target: disk.target, layers, outside };
}

/** Where the file below an image was: as its header names it, or beside the image, where that was a place. */
function formerBelow({ backing }: ForeignImage, former: string | null): string | undefined {
  if (backing?.path === undefined || backing.name.startsWith('json:')) return backing?.path;
  const name = backing.name.replace(/^file:/, '');
  if (name.startsWith('/')) return name;
  return former === null ? undefined : resolve(dirname(former), name);
}

const shown = (text: string): string => text.slice(0, 200);
