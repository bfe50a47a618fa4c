// kill -9 and cancel at each step of a clone: nothing is left of it.
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { CLONE_STEPS } from '../../agent/src/workflows/template/clone.ts';
import { scribble } from '../integration/templates/lab.ts';
import { few } from '../lab/few.ts';
import type { Guest } from '../lab/guest.ts';
import { AgentAlone, INTERRUPTED, momentsOf, type Picture } from './agent-alone.ts';
import { defineTemplate, startClone } from './faults-template-lab.ts';

let alone: AgentAlone;
let template: Guest;
let before: Picture;

beforeAll(async () => {
  alone = await AgentAlone.start();
  template = await defineTemplate(alone, { idle: true });
  for (const path of Object.values(await template.disks())) await scribble(path, 'v0');
  before = await alone.picture(template);
});
afterAll(() => alone?.stop());

describe('clone', () => {
  describe.each([true, false])('thin: %s', thin => {
    const clone = () => startClone(alone, template, { thin });

    const moments = momentsOf(CLONE_STEPS, 'copy.mid');
    test.each(thin ? few(moments, 'copy.after', 'define.after') : moments)(
      'kill -9 of the agent at %s',
      async moment => {
        const operation = await alone.killedAt(`clone_domain.${moment}`, clone);
        expect(operation).toMatchObject(INTERRUPTED);
        expect(await alone.picture(template)).toEqual(before);
      },
    );

    test.each(few(['copy.after', 'define.after'], 'define.after'))('cancel at %s', async moment => {
      const operation = await alone.canceledAt(`clone_domain.${moment}`, clone);
      expect(operation.state).toBe(OperationState.CANCELED);
      expect(await alone.picture(template)).toEqual(before);
    });
  });
});
