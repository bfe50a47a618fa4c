import { describe, expect, test } from '@jest/globals';
import {
  heldReleases,
  type LoanAction,
  type PartyView,
  planReconciliation,
  stillDue,
} from './reconcile-plan.ts';

const attachment = (diskId: string, ownerId: string, more = {}) => ({
  diskId,
  ownerId,
  attachedId: 'a',
  targetDev: 'vdb',
  path: '/x',
  thinClone: false,
  ...more,
});
const view = (id: string, more: Partial<PartyView> = {}): PartyView => ({
  id,
  name: id,
  running: true,
  attachments: [],
  noted: [],
  loans: [],
  hasInstant: false,
  ...more,
});
const loan = { diskId: 'd', borrowerId: 'b' };
const owner = (more: Partial<PartyView> = {}) => view('o', { loans: [loan], hasInstant: true, ...more });
const borrower = (more: Partial<PartyView> = {}) => {
  const there = attachment('d', 'o');
  return view('b', { attachments: [there], noted: [there], ...more });
};
const key = { ownerId: 'o', diskId: 'd', borrowerId: 'b' };

describe('planReconciliation', () => {
  test('what is in order stays', () => {
    expect(planReconciliation([owner(), borrower()])).toEqual([]);
    expect(planReconciliation([view('x'), view('y')])).toEqual([]);
  });

  test('of many domains each is looked at a few times, however many there are', () => {
    const looksAt = (count: number) => {
      let looks = 0;
      const domains = Array.from({ length: count }, (_, index) => ({
        ...view(`vm-${index}`),
        get attachments() {
          looks += 1;
          return [];
        },
      }));
      expect(planReconciliation(domains)).toEqual([]);
      return looks;
    };
    expect(looksAt(300)).toBe(100 * looksAt(3));
  });

  test('a loan ends with its borrower, and when that has the disk no more', () => {
    expect(planReconciliation([owner()])).toEqual([{ do: 'end', ...key }]);
    expect(planReconciliation([owner(), borrower({ attachments: [], noted: [] })])).toEqual([
      { do: 'end', ...key },
    ]);
    expect(planReconciliation([owner(), borrower({ attachments: [] })])).toEqual([{ do: 'end', ...key }]);
  });

  test('of a domain that cannot be read nothing counts as gone, and the others are kept all the same', () => {
    const plan = (unread: string, ...views: PartyView[]) =>
      planReconciliation(views, new Map([[unread, new Set<string>()]]));
    expect(plan('b', owner())).toEqual([]);
    expect(plan('x', owner())).toEqual([{ do: 'end', ...key }]);
    expect(plan('o', borrower({ attachments: [] }))).toEqual([]);
  });

  test('an instant stays only for a domain that cannot be read and may have a disk of it', () => {
    const release = { do: 'release', ownerId: 'o', diskId: '', borrowerId: '' };
    const left = [owner({ loans: [] })];
    const naming = (...owners: string[]) => new Map([['b', new Set(owners)]]);
    expect(planReconciliation(left, naming('other'))).toEqual([release]);
    expect(heldReleases(left, naming('other'))).toEqual([]);
    expect(planReconciliation(left, naming('o'))).toEqual([]);
    expect(heldReleases(left, naming('o'))).toEqual([{ owner: 'o', unread: 'b' }]);
    expect(heldReleases([owner()], naming('o'))).toEqual([]);
  });

  test("another node's borrower is not this node's business", () => {
    expect(planReconciliation([owner({ loans: [{ ...loan, borrowerNodeId: 'n' }] })])).toEqual([]);
  });

  test('a running guest is asked again; one that is off has nothing to be asked', () => {
    const attachments = [attachment('d', 'o', { detaching: true })];
    expect(planReconciliation([owner(), borrower({ attachments })])).toEqual([{ do: 'take_back', ...key }]);
    expect(planReconciliation([owner(), borrower({ attachments, running: false })])).toEqual([]);
  });

  test('lost metadata is made up for: of the owner, of the borrower', () => {
    expect(planReconciliation([owner({ loans: [] }), borrower()])).toEqual([{ do: 'note', ...key }]);
    expect(
      planReconciliation([owner(), borrower({ attachments: [attachment('d', '')], noted: [] })]),
    ).toEqual([]);
    expect(planReconciliation([borrower()])).toEqual([]);
  });

  test('an instant without loans goes', () => {
    const release = { do: 'release', ownerId: 'o', diskId: '', borrowerId: '' };
    expect(planReconciliation([owner({ loans: [] })])).toEqual([release]);
  });

  test('a note of a disk that is gone, and whose owner is not here, goes', () => {
    expect(planReconciliation([borrower({ attachments: [] })])).toEqual([{ do: 'end', ...key }]);
  });

  test('a kept clone is looked at', () => {
    expect(planReconciliation([owner({ loans: [{ ...loan, cloneKept: true }] })])).toEqual([
      { do: 'look_at_clone', ...key },
    ]);
  });

  test('what was found is done only while it is due', () => {
    const found: LoanAction[] = [{ do: 'release', ownerId: 'o', diskId: '', borrowerId: '' }];
    expect(stillDue(found, planReconciliation([owner({ loans: [] })]))).toEqual(found);
    expect(stillDue(found, planReconciliation([owner(), borrower()]))).toEqual([]);
    expect(stillDue(found, [{ ...found[0]!, ownerId: 'another' }])).toEqual([]);
  });
});
