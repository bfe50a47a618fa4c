/** A controller with a database of its own acts without asking. */
import { join } from 'node:path';
import { readIfPresent, writeDurably } from '@virtkeep/shared/durable-file';
import { parseEpoch } from '@virtkeep/shared/epoch';
import type { Logger } from '@virtkeep/shared/log';
import type { Acting } from '../agents/acting.ts';

const FILE = 'controller-epoch';

/**
 * Nodes that several controllers have called take calls of a higher epoch only: one that follows them has it in a file
 * (`migrate-database`). One that has always been alone has none.
 */
export async function actAlone(stateDir: string, log: Logger): Promise<Acting> {
  const epoch = parseEpoch((await readIfPresent(join(stateDir, FILE)))?.trim() ?? '');
  let isTold = false;
  return {
    mustAct: () => epoch,
    sawHigher: highest => {
      if (isTold) return;
      isTold = true;
      log.error(
        'another controller has taken over the nodes; see "Back to one that is alone" in docs/several-controllers.md',
        {
          epoch,
          highest,
        },
      );
    },
  };
}

/** It follows several controllers, the last one of which had this epoch. */
export async function followWith(stateDir: string, lastEpoch: number): Promise<void> {
  await writeDurably(join(stateDir, FILE), `${lastEpoch + 1}\n`, 0o600);
}
