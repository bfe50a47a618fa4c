/**
 * How far a merge is. That a disk has the lower file proves nothing: others may have put a definition of before in place while
 * the upper file held the newest data. So it is noted before a merge begins and when it is done, and what lies between counts
 * as done only where nobody but the merge itself can have brought it about.
 */
import type { LooseLayer, MergeStage } from '../../domain-xml/index.ts';
import type { ChainPicture } from './picture.ts';

/** As noted before the first byte. */
export function firstStage(picture: ChainPicture, above: string): MergeStage {
  return isLiveTop(picture, above) ? 'live' : 'begun';
}

/** Whether the lower file has all that the upper one had. */
export function isMerged(picture: ChainPicture, { path, stage, reader }: LooseLayer): boolean {
  if (stage === undefined || stage === 'merged') return true;
  if (reader !== undefined && picture.files.get(reader) === path) return true;
  return stage === 'live' && isLiveTop(picture, path);
}

const isLiveTop = (picture: ChainPicture, path: string): boolean =>
  [...picture.live.values()].some(top => top.path === path);
