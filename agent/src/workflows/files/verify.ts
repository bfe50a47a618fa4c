/** Reads a whole archive and compares what can be compared. */
import { hasKey } from '@virtkeep/shared/errors';
import type { ResultOf } from '@virtkeep/shared/operation-result';
import {
  type ArchiveProblem,
  type Judgement,
  needsOf,
  restorableStates,
  type VerifyResult,
  verifyArchive,
} from '../../archive/index.ts';
import { openBackup } from '../archives/source.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';

/**
 * Damage is a result and not an error, also when the archive cannot be opened any more: the operation succeeds and tells
 * what is wrong with which member, and which states can still be restored.
 */
export function verifyWorkflow(dependencies: Pick<WorkflowDependencies, 'judge'>, path: string): Workflow {
  return async context => {
    let judgement: Judgement | undefined;
    const result = await context.step('verify', () =>
      verifyArchive(path, {
        signal: context.signal,
        onOpened: archive => {
          judgement = dependencies.judge(archive);
        },
        onTotal: bytes => context.progress.total(bytes),
        onProgress: bytes => context.progress.done(bytes),
      }),
    );
    if (result.unprovenMembers > 0 && result.problems.length === 0)
      context.warn('The archive has no checksums for some members: their content could be read, not proved.');
    if (result.restorableStates.length === 0)
      result.restorableStates = await restorable(path, result, context);
    context.commit({ $case: 'verify', value: verifyResult(result, judgement, new Date()) });
  };
}

/** Of an archive without manifest: its one state, when nothing that it needs is damaged. */
async function restorable(
  path: string,
  { problems }: VerifyResult,
  { signal }: Pick<OperationContext, 'signal'>,
): Promise<number[]> {
  try {
    const { archive, manifest } = await openBackup(path, '', signal);
    await archive.close();
    return archive.manifest === null ? restorableStates([needsOf(manifest)], problems) : [];
  } catch (error) {
    if (hasKey(error, 'archive_damaged', 'archive_unsupported', 'xml_invalid')) return [];
    throw error;
  }
}

/** What a verification tells; `now` is its time. */
export function verifyResult(
  result: VerifyResult,
  judgement: Judgement | undefined,
  now: Date,
): ResultOf<'verify'> {
  return {
    ok: result.problems.length === 0,
    problems: result.problems.map(problemOf),
    verifiedAt: now.toISOString(),
    hashed: result.hashed,
    unprovenMembers: result.unprovenMembers,
    restorableStates: { numbers: result.restorableStates },
    signature: judgement && signatureOf(judgement),
  };
}

const signatureOf = ({ trust, signer, reason, coversContent }: Judgement) => ({
  ...{ trust, signer, reason, coversContent },
});

function problemOf({ member, problem, text }: ArchiveProblem): { member: string; reason: string } {
  return { member: member ?? '', reason: `${problem}: ${text}` };
}
