/** Whose a block job is. One that virtkeep did not start is never ended, finished, or merged under. */
import { type ChainPicture, type LiveTop, liveDiskOf } from './picture.ts';

/** The kind of a job on the running disk that is not one of ours; null when there is none. */
export function foreignJobOn(picture: ChainPicture, targetDev: string): string | null {
  const top = picture.live.get(targetDev);
  const job = top?.mirror?.job ?? top?.job ?? null;
  return top === undefined || job === null || isOwnJob(picture, targetDev, top) ? null : job;
}

/**
 * A job is ours when a merge was noted before it began and the job is that merge: of that kind, from that file into that
 * one. Of a commit below the top libvirt tells the kind alone; it is waited for only, whoever began it.
 */
function isOwnJob(picture: ChainPicture, targetDev: string, { path, mirror, job }: LiveTop): boolean {
  const notes = picture.metadata.looseLayers ?? [];
  if (mirror) {
    if (mirror.job !== ACTIVE_COMMIT) return false;
    return notes.some(({ path: layer, merging }) => merging === path && layer === mirror.path);
  }
  const isNoted = notes.some(
    ({ merging }) => merging !== undefined && liveDiskOf(picture, merging) === targetDev,
  );
  return isNoted && (job === COMMIT || job === ACTIVE_COMMIT);
}

/** libvirt's words. */
const COMMIT = 'commit';
const ACTIVE_COMMIT = 'active-commit';

/** A block job that is not one of ours, as a reason; null when there is none. */
export function blockJobOf(picture: ChainPicture): string | null {
  for (const targetDev of picture.live.keys()) {
    const job = foreignJobOn(picture, targetDev);
    if (job !== null) return jobReason(job, targetDev);
  }
  return null;
}

export const jobReason = (job: string, targetDev: string): string =>
  `a ${job} job that virtkeep did not start runs on the disk ${targetDev}`;

/** Of a commit below the top, which may have been begun by an agent before this one as well as by somebody else. */
export const standingReason = (targetDev: string): string =>
  `a commit job, of which virtkeep does not know whether it began it, stands still on the disk ${targetDev}; end it with virsh blockjob --abort, then delete the state again`;
