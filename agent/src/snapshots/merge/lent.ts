/**
 * The layers that a domain writes to while the files below them are lent. A loan is minutes old when its node may go down and another one
 * run the domain from a definition of before it: then the file below is newer than the layer. Nobody writes to what is lent but a merge
 * below it (`lent-moved.ts`), so whether that has happened the file itself tells. It does until the merge into it is noted; from then on
 * only both together are the disk.
 */
import { LENDING_STATE } from '../plan.ts';
import { WRITTEN } from './mark.ts';
import { type ChainPicture, readersOf } from './picture.ts';
import type { MergeStep } from './step.ts';

/** An overlay, with the file below it as it was when it was made, from `markOf`, as far as that is known. */
export interface MarkedLayer {
  path: string;
  mark?: string | undefined;
  /** virtkeep may have changed that file itself since. */
  moving?: true | undefined;
}

/** Those whose merge did not begin. */
export function lentLayers({ states, metadata }: Pick<ChainPicture, 'states' | 'metadata'>): Set<string> {
  const { lentLayers: marked = [], looseLayers = [] } = metadata;
  const state = states.find(({ name }) => name === LENDING_STATE);
  const lent = new Set([...Object.values(state?.overlays ?? {}), ...marked.map(({ path }) => path)]);
  for (const { merging } of looseLayers) if (merging !== undefined) lent.delete(merging);
  return lent;
}

/** Those of which the file below tells it, with what it was; an earlier version did not note that. */
export function tellingLayers(picture: Pick<ChainPicture, 'states' | 'metadata' | 'files'>): MarkedLayer[] {
  return [...lentLayers(picture)].flatMap(path => {
    const marked = picture.metadata.lentLayers?.find(layer => layer.path === path);
    // what was lent was itself merged into the file below it meanwhile; that it had been written to holds whatever is below by now
    if (marked && marked.below !== picture.files.get(path) && marked.mark !== WRITTEN) return [];
    return [{ path, mark: marked?.mark, moving: marked?.moving }];
  });
}

/** Those that there are, each with the file that it stands on. */
export function lentLayersOn(picture: ChainPicture): Map<string, string> {
  const pairs = [...lentLayers(picture)].map(path => [path, picture.files.get(path)] as const);
  return new Map(pairs.flatMap(([path, below]) => (below ? [[path, below] as const] : [])));
}

/** Those whose state is forgotten already, so that they are about to be merged. */
export function lentLayersLeft(picture: ChainPicture): string[] {
  const lent = lentLayers(picture);
  return (picture.metadata.looseLayers ?? []).flatMap(({ path }) =>
    readersOf(picture, path).filter(reader => lent.has(reader)),
  );
}

/** Takes what is known of layers that are gone out of the metadata; undefined when there is nothing of the kind. */
export function forgetGone({ gone, metadata }: ChainPicture): MergeStep | undefined {
  const { lentLayers: marked = [], ...others } = metadata;
  const there = marked.filter(({ path }) => !gone.has(path));
  if (there.length === marked.length) return undefined;
  return { do: 'note', metadata: there.length > 0 ? { ...others, lentLayers: there } : others };
}
