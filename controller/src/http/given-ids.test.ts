import { expect, test } from '@jest/globals';
import Type from 'typebox';
import { pathWithIds, readIds } from './given-ids.ts';
import { GivenUuid, nullable, UUID_PATTERN } from './schemas/common.ts';

const ID = '0a1b2c3d-aaaa-4bbb-8ccc-00000000000f';
const CAPITALS = ID.toUpperCase();
const schema = Type.Object({
  id: GivenUuid,
  other: Type.Optional(nullable(GivenUuid)),
  list: Type.Optional(Type.Array(GivenUuid)),
  text: Type.Optional(Type.String()),
});

test('ids become lower case where the schema says that one stands', () => {
  const given = { id: CAPITALS, other: CAPITALS, list: [CAPITALS, ID, 1], text: CAPITALS, more: CAPITALS };
  readIds(given, schema);
  expect(given).toEqual({ id: ID, other: ID, list: [ID, ID, 1], text: CAPITALS, more: CAPITALS });
});

test('an empty id is absent where it may be, and stays to be refused where not', () => {
  const given = { id: '', other: '', list: [''], text: '' };
  readIds(given, schema);
  expect(given).toEqual({ id: '', list: [''], text: '' });
});

test('ids inside of objects are no others', () => {
  const nested = Type.Object({ options: Type.Optional(schema) });
  const given = { options: { id: CAPITALS, other: '', list: [CAPITALS], text: CAPITALS } };
  readIds(given, nested);
  expect(given).toEqual({ options: { id: ID, list: [ID], text: CAPITALS } });
  for (const options of [null, 'text', [CAPITALS]]) expect(() => readIds({ options }, nested)).not.toThrow();
});

test('what is no id stays, and so do values that are no objects', () => {
  const given = { id: 'ABC', other: null };
  readIds(given, schema);
  expect(given).toEqual({ id: 'ABC', other: null });
  for (const value of [undefined, null, 'text', 1]) expect(() => readIds(value, schema)).not.toThrow();
  expect(() => readIds({ id: ID }, undefined)).not.toThrow();
});

test('what is answered is lower case', () => {
  expect(new RegExp(UUID_PATTERN).test(CAPITALS)).toBe(false);
});

test('ids of a path', () => {
  expect(pathWithIds(`/api/domains/${CAPITALS}/start/`)).toBe(`/api/domains/${ID}/start/`);
  expect(pathWithIds(`/api/domains/${CAPITALS}`)).toBe(`/api/domains/${ID}`);
  expect(pathWithIds(`/api/Domains/x${CAPITALS}/`)).toBe(`/api/Domains/x${CAPITALS}/`);
});
