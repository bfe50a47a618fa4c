/**
 * What an archive gets before it is extended, when that was asked for: its other form, and hashes for members that have none
 * (specification 2.2). Both take as long as reading all of it, so they come before the VM's new state is made.
 *
 * The VM may be started and stopped meanwhile, by us as by others, and may move to another node: nothing of it is read then. So what is
 * held of it is held as it was at the begin only until here, and anew before it is looked at again.
 *
 * Neither stays when the increment fails. The other form is a file of its own, which nobody sees before the increment in it is whole;
 * the archive is what it was until then.
 */

import { dirname } from 'node:path';
import type { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { missingHashes, unhashedBytes } from '../../archive/index.ts';
import { markSources, type SourceMark } from '../../disks/index.ts';
import { type Conversion, closeConversion, openConversion, writeConversion } from '../archives/conversion.ts';
import type { OperationContext } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { estimate } from './copy.ts';
import { type BackupJob, checkAgain, type ExtendedArchive, fullInstead, reasonForFull } from './job.ts';

/** The steps in order, of an increment that needs them; they come between its `estimate` and its `state`. */
export const PREPARE_STEPS = ['convert', 'hash', 'recheck'] as const;

/** The archive in its other form: whole, without a name of its own. */
export interface OtherForm extends Conversion {
  /** Of the old file as it was converted. */
  mark: SourceMark[];
  sizeBytes: number;
}

export interface PreparedBase {
  /** SHA-256 by name of the members that had none; undefined when they are not asked for. */
  hashes?: ReadonlyMap<string, string>;
  /** What is extended in place of the archive. */
  form?: OtherForm;
}

/** What is backed up in the end: a full backup may have taken the increment's place. */
export interface Prepared {
  job: BackupJob;
  base: PreparedBase;
}

/**
 * Makes the archive ready. Whoever calls it closes `form`.
 * @throws VirtkeepError what converting, reading, `Hold.renew` and `checkAgain` raise; not what a full backup stands in for
 */
export async function prepareBase(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  context: OperationContext,
  job: BackupJob,
): Promise<Prepared> {
  const { base } = job;
  if (!base?.toConvert && !base?.toHash) return { job, base: {} };
  context.hold.loosen();
  let ready: PreparedBase;
  try {
    ready = base.toConvert
      ? await converted(dependencies, request, context, { job, base })
      : await hashed(context, base);
  } catch (error) {
    const reason = reasonForFull(request, error);
    if (reason === null) throw error;
    return { job: await standsIn(dependencies, request, context, { former: job, reason }), base: {} };
  }
  try {
    const now = await context.step('recheck', async () => {
      await context.hold.renew();
      const again = await checkAgain(dependencies, request, context, job);
      const { base: extended } = again;
      await estimate(dependencies, extended ? { ...again, base: { ...extended, toConvert: false } } : again);
      return again;
    });
    if (now.base) return { job: now, base: ready };
    if (ready.form) await closeConversion(ready.form);
    return { job: now, base: {} };
  } catch (error) {
    if (ready.form) {
      tellGivenUp(context, base);
      await closeConversion(ready.form);
    }
    throw error;
  }
}

/** An archive's other form is taken back, of which nobody heard. */
export function tellGivenUp(
  { warn }: Pick<OperationContext, 'warn'>,
  { filename }: Pick<ExtendedArchive, 'filename'>,
): void {
  warn(
    `The archive ${filename} is as it was: its other form goes with the increment that did not come about.`,
  );
}

async function standsIn(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  context: OperationContext,
  instead: { former: BackupJob; reason: string },
): Promise<BackupJob> {
  return context.step('recheck', async () => {
    await context.hold.renew();
    const job = await fullInstead(dependencies, request, context, instead);
    await estimate(dependencies, job);
    return job;
  });
}

async function converted(
  dependencies: WorkflowDependencies,
  { compressionLevel: level }: StartBackupRequest,
  context: OperationContext,
  { job, base }: { job: BackupJob; base: ExtendedArchive },
): Promise<PreparedBase> {
  const { path, lock, manifest, toHash: hash } = base;
  const options = { path, lock, directory: dirname(path), compress: job.compressed, level, hash };
  const draft: { conversion?: Conversion } = {};
  try {
    return await context.step('convert', async () => {
      const mark = await markSources([path]);
      const { size: sizeBytes } = await lock.handle.stat();
      const conversion = await openConversion(dependencies, context, options);
      draft.conversion = conversion;
      await writeConversion(context, conversion.converter, manifest.states.length + 1);
      const form = { ...conversion, mark, sizeBytes };
      return { form, ...(hash && { hashes: conversion.converter.hashes }) };
    });
  } catch (error) {
    // also when the step was given up with its work done: a name that is still held cannot be given free
    if (draft.conversion) await closeConversion(draft.conversion);
    throw error;
  }
}

async function hashed(context: OperationContext, base: ExtendedArchive): Promise<PreparedBase> {
  const { path, lock, manifest } = base;
  return context.step('hash', async () => {
    context.progress.total(unhashedBytes(manifest));
    const onProgress = (bytes: number) => context.progress.done(bytes);
    return { hashes: await missingHashes(path, lock, { signal: context.signal, onProgress }) };
  });
}
