import Type from 'typebox';
import { PROTECTION_STATES } from '../../services/protection/rules.ts';
import { STORY } from '../document/story.ts';
import { described, named, nullable, oneOf, part, record, Time, text } from './common.ts';

export const ProtectionStateText = oneOf(PROTECTION_STATES, {
  description:
    'late: no good restore point is as new as it should be; failing: the last attempt failed, the one before is still new enough; never: it has no good restore point with all of its disks; excluded: an administrator does without',
});

/** The fields of a verdict, which the record of a VM has, too. */
export const VERDICT = {
  state: ProtectionStateText,
  last_good: nullable(
    described(
      Time,
      'time of its newest restore point in a good file that leaves out no disks on request; null: it has none',
    ),
  ),
  age: nullable(Type.Integer({ minimum: 0, description: 'seconds since then' })),
};

export const VERDICT_EXAMPLE = { state: 'protected', last_good: STORY.ended, age: 28_800 } as const;

export const ProtectionSchema = record(
  'Protection',
  {
    description: 'How well a VM is protected, and why',
    example: {
      domain: { id: STORY.domain, verbose_name: 'web-1' },
      node: { id: STORY.node, verbose_name: 'n1' },
      ...VERDICT_EXAMPLE,
      reason: `Its newest good restore point is of ${STORY.ended}.`,
      limit: STORY.changed,
      tasks: [{ id: STORY.schedule, verbose_name: 'nightly' }],
    },
  },
  {
    domain: named('the VM'),
    node: named('where it is'),
    ...VERDICT,
    reason: text('a sentence for people'),
    limit: nullable(
      described(Time, 'since when it must have a good restore point; null: none is asked of it now'),
    ),
    tasks: Type.Array(named('an enabled scheduled task'), { description: 'the tasks that back it up' }),
  },
);

const number = (description: string) => Type.Integer({ minimum: 0, description });

/** Beside the page of the list. */
export const CountsBeside = {
  properties: {
    counts: part(
      {
        protected: number('VMs that are protected'),
        late: number('VMs that are late'),
        failing: number('VMs that are failing'),
        never: number('VMs without a good restore point'),
        excluded: number('VMs that are excluded'),
      },
      'of all VMs that match the other filters, whatever their state',
    ),
  },
  example: { counts: { protected: 1, late: 0, failing: 0, never: 0, excluded: 0 } },
};
