/** Reads a whole archive and compares what can be compared. */
import { type ArchiveProblem, openArchive, type VerifyResult } from '../archive/index.ts';
import type { Workflow } from './context.ts';

export const VERIFY_STEPS = ['verify'] as const;

/** Damage is a result and not an error: the operation succeeds and tells what is wrong with which member. */
export function verifyWorkflow(path: string): Workflow {
  return async context => {
    const { result, hashed } = await context.step('verify', async () => {
      const archive = await openArchive(path, context.signal);
      try {
        context.progress.total(archive.members.reduce((sum, member) => sum + member.sizeBytes, 0));
        const found = await archive.verify({
          signal: context.signal,
          onProgress: bytes => context.progress.done(bytes),
        });
        return { result: found, hashed: archive.members.some(member => member.sha256 !== null) };
      } finally {
        await archive.close();
      }
    });
    if (result.unprovenMembers > 0 && result.problems.length === 0)
      context.warn('The archive has no checksums for some members: their content could be read, not proved.');
    context.commit(verifyResult(result, hashed, new Date()));
  };
}

export function verifyResult(result: VerifyResult, hashed: boolean, now: Date): unknown {
  return {
    ok: result.problems.length === 0,
    problems: result.problems.map(problemOf),
    verified_at: now.toISOString(),
    hashed,
  };
}

function problemOf({ member, problem, text }: ArchiveProblem): { member: string; reason: string } {
  return { member: member ?? '', reason: `${problem}: ${text}` };
}
