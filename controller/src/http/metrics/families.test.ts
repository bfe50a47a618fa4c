import { expect, test } from '@jest/globals';
import { Gauge, Registry } from 'prom-client';
import { type Family, familyText, labelText } from './families.ts';

interface Thing {
  id: string;
  value: number | null;
}
const family: Family<Thing> = {
  name: 'things_bytes',
  help: 'Their bytes',
  value: ({ value }) => value,
  labels: ({ value }) => ({ odd: String((value ?? 0) % 2 === 1) }),
};
const labelled = (things: Thing[]) => things.map(thing => ({ thing, labels: labelText({ id: thing.id }) }));
const written = (things: Thing[]) => [...familyText(family, labelled(things))].join('');

test('the text is what prom-client writes of the same', async () => {
  const ids = ['plain', 'quo"te', 'back\\slash', 'new\nline', 'ünïcode', '}{,='];
  const things = ids.map((id, value) => ({ id, value }));
  const registers = [new Registry()];
  const gauge = new Gauge({ name: family.name, help: family.help, labelNames: ['id', 'odd'], registers });
  for (const { id, value } of things) gauge.set({ id, odd: String(value % 2 === 1) }, value);
  expect(written(things)).toBe(await registers[0]!.metrics());
});

test('of a thing without a value nothing is told, and of none only what it would be', () => {
  expect(written([{ id: 'a', value: null }])).toBe(written([]));
  expect(written([])).toBe('# HELP things_bytes Their bytes\n# TYPE things_bytes gauge\n');
});

test('many things come in pieces of whole lines, each once', () => {
  const things = Array.from({ length: 1700 }, (_, value) => ({ id: `t${value}`, value }));
  const pieces = [...familyText(family, labelled(things))];
  expect(pieces.length).toBeGreaterThan(3);
  expect(pieces.every(piece => piece === '' || piece.endsWith('\n'))).toBe(true);
  const ids = [...pieces.join('').matchAll(/id="(t\d+)"/g)].map(([, id]) => id);
  expect(ids).toEqual(things.map(({ id }) => id));
});
