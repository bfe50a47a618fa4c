import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { openDatabase } from '../store/database.ts';
import type { Database } from '../store/schema.ts';
import { Catalogue } from './catalogue.ts';
import { detailsOf } from './file-record.ts';

const FILE = BackupFile.fromPartial({
  id: 'f',
  poolId: 'p',
  path: '/p/backups/a.tar',
  filename: 'a.tar',
  size: 10n,
  type: 'tar',
  created: new Date('2026-01-02T03:04:05.000Z'),
});
const WORK = { operation: 'o', description: null, protected: null };
const VERIFIED = { ok: true, problems: [], verifiedAt: '', hashed: true, restorableStates: null };
/** More moments than any of the catalogue's changes has. */
const MOMENTS = 60;
let db: Database;
let catalogue: Catalogue;

beforeEach(async () => {
  db = await openDatabase(':memory:');
  catalogue = new Catalogue(
    db,
    () => {},
    () => undefined,
  );
  await catalogue.seen(FILE);
});
afterEach(() => db.destroy());

/** Does each of two at each moment of the other, and looks at what comes of both. */
async function atEachMoment(
  one: () => Promise<unknown>,
  other: () => Promise<unknown>,
  look: () => Promise<void>,
): Promise<void> {
  for (const [first, second] of [
    [one, other],
    [other, one],
  ] as const)
    for (let moment = 0; moment < MOMENTS; moment += 1) {
      const begun = first();
      for (let turn = 0; turn < moment; turn += 1) await Promise.resolve();
      await Promise.all([begun, second()]);
      await look();
    }
}

describe('changes of a file at the same time', () => {
  const begin = () => catalogue.begin('f', 'UPDATING', WORK);
  const looks = {
    'a scan sees it': () => catalogue.scanned('p', [FILE], new Date()),
    'a scan does not see it': () => catalogue.scanned('p', [], new Date('2030-01-01')),
    'its configuration was read': () => catalogue.seen(FILE),
    'a verification ends': () => catalogue.verified('f', VERIFIED),
    'it gets a description': () => catalogue.update('f', { description: 'mine' }),
  };

  test.each(Object.entries(looks))(
    'an operation that begins while %s has it in work',
    async (_name, look) => {
      await atEachMoment(look, begin, async () => {
        const row = await catalogue.get('f');
        expect(row.status).toBe('UPDATING');
        expect(detailsOf(row).work).toEqual(WORK);
        await catalogue.operationFailed('f', 'o');
      });
    },
  );

  test('what the user says of it while a scan sees it stays', async () => {
    let words = 0;
    const describeIt = () => catalogue.update('f', { description: `text ${words}`, protected: words % 2 });
    await atEachMoment(
      () => catalogue.seen({ ...FILE, size: BigInt(words) }),
      describeIt,
      async () => {
        expect(await catalogue.get('f')).toMatchObject({
          description: `text ${words}`,
          protected: words % 2,
        });
        words += 1;
      },
    );
  });

  test('of two operations that begin one is refused', async () => {
    await atEachMoment(
      () => begin().catch(() => {}),
      () => catalogue.begin('f', 'DELETING', { ...WORK, operation: 'other' }).catch(() => {}),
      async () => {
        const row = await catalogue.get('f');
        const { operation } = detailsOf(row).work!;
        expect(operation).toBe({ UPDATING: 'o', DELETING: 'other' }[row.status]);
        await catalogue.operationFailed('f', operation);
      },
    );
  });
});

test('a verification that ends after an operation began leaves it in work, and what it found is kept', async () => {
  await catalogue.begin('f', 'UPDATING', WORK);
  const problems = [{ member: 'a', reason: 'hash' }];
  await catalogue.verified('f', { ...VERIFIED, ok: false, problems });
  expect((await catalogue.get('f')).status).toBe('UPDATING');
  await catalogue.operationFailed('f', 'o');
  expect((await catalogue.get('f')).status).toBe('DAMAGED');
});
