/**
 * The only functions of the agent that remove an image, a layer, a memory file of a state, or put another in its place, and
 * that make a file which is removed again when its operation fails.
 *
 * Nothing is removed before it is proven that nobody uses it: no domain of this node under any target, in its running or its
 * next definition or in those of its saved states; no image beside it that stands on it; no domain of another node, as far
 * as they can reach it; nobody who has it open, which QEMU's own locks tell. Those are held while the file goes. What is
 * used is left and named. What cannot be told is left, too; whether that is asked again is the caller's decision.
 */
export { removeEmptyDirectories } from './directories.ts';
export { type ElsewhereQuestion, reachableElsewhere, useElsewhere } from './elsewhere.ts';
export type { ImageDependencies, ImageQuestion } from './judge.ts';
export {
  chainOf,
  type Definition,
  type DomainFiles,
  definitionsOf,
  filesMentionedIn,
  filesOfDomain,
  isRunning,
  referredTo,
  savedXml,
} from './node-files.ts';
export {
  type FileMark,
  fileMarkAt,
  hasMark,
  isOwnFile,
  type MakeOptions,
  makeOwnFile,
  type OwnFile,
} from './own-file.ts';
export { PATIENCE_MS, PendingAnswers } from './pending.ts';
export {
  imagesInUse,
  type LeftImage,
  removeImages,
  removePieces,
  replaceImages,
  requireReplaceable,
} from './remove.ts';
