/** The row by which controllers agree who acts, on a server of its own. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { LeaseTable } from '../../../controller/src/store/lease-table.ts';
import { type PostgresTarget, targetOf } from '../../../controller/src/store/target.ts';
import { TestPostgres } from '../../lab/postgres.ts';

const [ONE, TWO, THREE] = ['one', 'two', 'three'].map(name => ({ holder: name, name })) as [
  { holder: string; name: string },
  { holder: string; name: string },
  { holder: string; name: string },
];
const AWAY = ['node1:9443', '[2001:db8::2]:9443'];

let server: TestPostgres;
let number = 0;
let table: LeaseTable;

beforeAll(async () => {
  server = await TestPostgres.start();
});
afterAll(() => server.remove());
beforeEach(async () => {
  number += 1;
  await server.ask(`create database lease_${number}`);
  table = new LeaseTable(targetOf(server.url(`lease_${number}`)) as PostgresTarget);
});
afterEach(() => table.close());

test('a claim stands while nodes are missed, and ends with the turn', async () => {
  const epoch = (await table.take(ONE, await table.read()))!;
  // nothing is missed
  await table.claim(TWO, epoch);
  expect(await table.renew('one', epoch, AWAY)).toEqual({ claim: null });
  const { beat } = await table.read();
  await table.claim(TWO, epoch);
  await table.claim(THREE, epoch);
  // a claim is no renewal: the one that acts may be gone
  expect(await table.read()).toMatchObject({ away: AWAY, claim: 'two', beat });
  expect(await table.renew('one', epoch, AWAY)).toEqual({ claim: 'two' });
  await table.release('one', epoch);
  expect(await table.read()).toMatchObject({ holder: null, claim: 'two' });
  await table.take(TWO, await table.read());
  expect(await table.read()).toMatchObject({ holder: 'two', away: [], claim: null });
});

test('a claim ends when the nodes are back, and to an earlier turn there is none', async () => {
  const epoch = (await table.take(ONE, await table.read()))!;
  await table.renew('one', epoch, AWAY);
  await table.claim(TWO, epoch - 1);
  expect(await table.renew('one', epoch, AWAY)).toEqual({ claim: null });
  await table.claim(TWO, epoch);
  expect(await table.renew('one', epoch, [])).toEqual({ claim: null });
  expect(await table.renew('two', epoch, [])).toBeUndefined();
});

test('a table of an earlier version is used as it is, and that version goes on with ours', async () => {
  const database = `lease_${number}`;
  await server.ask(
    `create table controller_lease (
       id int primary key check (id = 1), holder text, name text not null, address text not null,
       epoch bigint not null, beat bigint not null);
     insert into controller_lease values (1, 'one', 'one', 'a:1', 3, 9)`,
    database,
  );
  expect(await table.read()).toEqual({
    ...{ holder: 'one', name: 'one', address: 'a:1', epoch: 3, beat: 9 },
    ...{ away: [], claim: null },
  });
  await server.ask(
    "insert into controller_lease values (1, null, '', '', 0, 0) on conflict do nothing",
    database,
  );
  expect(await table.read()).toMatchObject({ holder: 'one' });
});
