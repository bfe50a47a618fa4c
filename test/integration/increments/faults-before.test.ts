// See faults-lab.ts.
import { afterAll, beforeAll, test } from '@jest/globals';
import { BACKUP_STEPS } from '../../../agent/src/workflows/backup/backup.ts';
import { few } from '../../lab/few.ts';
import { WorkflowLab } from '../backup/lab.ts';
import { failsAt } from './faults-lab.ts';

let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

test.each(
  few(
    BACKUP_STEPS.map(step => `${step}.before`),
    'state.before',
    'merge.before',
  ),
)('an increment of a guest that is off, which fails at %s, leaves VM and archive as before', where =>
  failsAt(lab, where),
);
