/** Bad values in the bodies of all calls of the API document, as `bad-input.test.ts` sends them elsewhere. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Operation } from './api-document.ts';
import type { RestApp } from './app.ts';
import {
  BAD_VALUES,
  bodySchema,
  type Documented,
  expectDocumented,
  goodBody,
  hasBody,
  pathFor,
  startDocumented,
} from './bad-input-world.ts';

let rest: RestApp;
let each: Documented['each'];

beforeAll(async () => {
  ({ rest, each } = await startDocumented());
});

afterAll(() => rest.close());

test('unknown fields are all named', () =>
  each(hasBody, async operation => {
    const body = { ...goodBody(bodySchema(operation)!), colour: 1, taste: { deep: true } };
    const answer = await rest.call(operation.method, pathFor(operation), { body });
    if (ignoresUnknown(operation)) return expectDocumented(answer, operation.path);
    expect([operation.path, answer.status]).toEqual([operation.path, 400]);
    const fields = answer.body.errors.map((error: { field?: string }) => error.field);
    expect(fields).toEqual(expect.arrayContaining(['colour', 'taste']));
  }));

test('missing fields are all named', () =>
  each(
    operation => (bodySchema(operation)?.required ?? []).length > 0,
    async operation => {
      const answer = await rest.call(operation.method, pathFor(operation), { body: {} });
      expect([operation.path, answer.status]).toEqual([operation.path, 400]);
      const fields = answer.body.errors.map((error: { field?: string }) => error.field);
      expect(fields).toEqual(expect.arrayContaining(bodySchema(operation)!.required!));
    },
  ));

test('each field with values of every kind', () =>
  each(
    operation => bodySchema(operation) !== undefined,
    async operation => {
      const schema = bodySchema(operation)!;
      for (const name of Object.keys(schema.properties ?? {})) {
        for (const value of BAD_VALUES) {
          const body = { ...goodBody(schema), [name]: value };
          const answer = await rest.call(operation.method, pathFor(operation), { body });
          expectDocumented(
            answer,
            `${operation.method} ${operation.path} ${JSON.stringify({ [name]: value })}`,
          );
        }
      }
    },
  ));

test('broken JSON, and JSON that is no object', () =>
  each(hasBody, async operation => {
    for (const raw of [
      '{',
      '{"a":',
      '{"a":1,}',
      'nonsense',
      '"text"',
      '[]',
      '1',
      'null',
      '{"__proto__":{"x":1}}',
    ]) {
      const answer = await rest.call(operation.method, pathFor(operation), { raw });
      expect([operation.path, raw, answer.status]).toEqual([operation.path, raw, 400]);
      expectDocumented(answer, `${operation.path} ${raw}`);
    }
    const bytes = Buffer.from([0xff, 0xfe, 0x00, 0x7b]);
    expect((await rest.call(operation.method, pathFor(operation), { raw: bytes })).status).toBe(400);
  }));

test('too large, too deep, or of another type', () =>
  each(hasBody, async operation => {
    const path = pathFor(operation);
    const huge = await rest.call(operation.method, path, {
      raw: JSON.stringify({ a: 'x'.repeat(70_000) }),
    });
    expect([operation.path, huge.status, huge.body.errors[0].msg_key]).toEqual([
      operation.path,
      413,
      'body_too_large',
    ]);
    const deep = await rest.call(operation.method, path, {
      raw: `${'{"a":'.repeat(8000)}1${'}'.repeat(8000)}`,
    });
    expectDocumented(deep, `${operation.path} deep`);
    for (const type of ['text/plain', 'application/xml', 'multipart/form-data; boundary=x', 'nonsense']) {
      const answer = await rest.call(operation.method, path, {
        raw: '{}',
        headers: { 'content-type': type },
      });
      expect([operation.path, type, answer.status]).toEqual([operation.path, type, 415]);
    }
  }));

/** The specification's exception: bodies of disk attachment. */
function ignoresUnknown({ path }: Operation): boolean {
  return path.endsWith('/attach-vdisk/') || path.endsWith('/detach-vdisk/');
}
