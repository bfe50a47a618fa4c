import { describe, expect, test } from '@jest/globals';
import type { FastifyRequest } from 'fastify';
import Type from 'typebox';
import { type ListQuery, listFromArray, parsePage } from './paging.ts';

const schema = Type.Object({ id: Type.String(), verbose_name: Type.String(), size: Type.Integer() });
const records = [
  { id: 'a', verbose_name: 'Web 10', size: 3 },
  { id: 'b', verbose_name: 'web 2', size: 20 },
  { id: 'c', verbose_name: 'Äpfel', size: 100 },
];

const request = {
  originalUrl: '/api/things/?limit=1&name=web',
  server: { publicUrl: null },
  protocol: 'https',
  host: 'keep.example:8443',
} as unknown as FastifyRequest;

function list(query: ListQuery) {
  return listFromArray(request, parsePage(query, schema, ['verbose_name', '-size']), records);
}

const ids = (answer: { results: object[] }) => answer.results.map(record => (record as { id: string }).id);

describe('a list in memory', () => {
  test('orders numbers by value and texts by language', () => {
    expect(ids(list({}))).toEqual(['c', 'a', 'b']);
    expect(ids(list({ ordering: 'size' }))).toEqual(['a', 'b', 'c']);
    expect(ids(list({ ordering: '-size' }))).toEqual(['c', 'b', 'a']);
  });

  test('filters by part of the name, in any case', () => {
    expect(ids(list({ name: 'WEB' }))).toEqual(['a', 'b']);
    expect(ids(list({ name: 'äp' }))).toEqual(['c']);
  });

  test('gives full URLs that keep the query', () => {
    const first = list({ name: 'web', limit: 1 });
    expect(first).toMatchObject({ count: 2, previous: null });
    expect(first.next).toBe('https://keep.example:8443/api/things/?limit=1&name=web&offset=1');
    const last = list({ name: 'web', limit: 1, offset: 1 });
    expect(last).toMatchObject({ next: null });
    expect(new URL(last.previous!).searchParams.get('offset')).toBe('0');
  });

  test('answers only the fields asked for', () => {
    expect(list({ fields: 'id, size', limit: 1 }).results).toEqual([{ id: 'c', size: 100 }]);
  });

  test('refuses unknown fields and orderings', () => {
    expect(() => list({ fields: 'id,colour' })).toThrow('colour');
    expect(() => list({ ordering: 'id' })).toThrow('verbose_name, size');
  });
});
