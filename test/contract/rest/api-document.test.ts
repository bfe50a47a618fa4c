/** The API document is complete and true: whoever reads it, or makes a client of it, needs nothing else. */
import { createRequire } from 'node:module';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { ERRORS, type ErrorKey, httpStatusOf } from '@virtkeep/shared/errors';
import {
  type ApiDocument,
  declaredKeys,
  lackOfOperation,
  lackOfSchema,
  type Operation,
  operationsOf,
  titlesOf,
} from './api-document.ts';
import { makeRestApp, type RestApp } from './app.ts';

/** What these tests need of Redocly's linter, the public validator. */
interface Linter {
  lintFromString: (options: { source: string; config: unknown }) => Promise<Problem[]>;
  createConfig: (config: object) => Promise<unknown>;
}
interface Problem {
  ruleId: string;
  severity: string;
  message: string;
  location: { pointer?: string }[];
}

let rest: RestApp;
let document: ApiDocument;
let operations: Operation[];

beforeAll(async () => {
  rest = await makeRestApp();
  document = (await rest.call('GET', '/api/openapi.json')).body;
  operations = operationsOf(document);
});
afterAll(() => rest.close());

test('every operation has its name, its words, its examples and its errors', () => {
  expect(operations.length).toBeGreaterThan(90);
  expect(operations.flatMap(lackOfOperation)).toEqual([]);
  const twice = <T>(all: T[]) => all.filter((one, index) => all.indexOf(one) !== index);
  expect(twice(operations.map(({ spec }) => spec.operationId))).toEqual([]);
  expect(twice([...operations.flatMap(titlesOf), ...Object.keys(document.components.schemas)])).toEqual([]);
});

test('every record has its words and an example', () => {
  const lacking = Object.entries(document.components.schemas).flatMap(([name, schema]) => [
    ...(schema.description ? [] : [`${name} lacks a description`]),
    ...(schema.examples?.length ? [] : [`${name} lacks an example`]),
    ...lackOfSchema(schema, name),
  ]);
  expect(lacking).toEqual([]);
});

test('errors stand at the status that they are answered with, each with its example', () => {
  for (const { method, path, spec } of operations)
    for (const status of Object.keys(spec.responses).filter(code => Number(code) >= 400))
      for (const key of declaredKeys(spec, Number(status))) {
        expect([method, path, key, httpStatusOf(key as ErrorKey)]).toEqual([
          method,
          path,
          key,
          Number(status),
        ]);
        expect(document.components.examples[key]).toBeDefined();
      }
});

/** Errors that no call answers: of gRPC, of paths that are none, or told in a record only. */
const NEVER_ANSWERED: readonly ErrorKey[] = [
  // of a command of the controller
  'database_copy_differs',
  'database_in_use',
  'database_not_empty',
  // of what reads foreign packages on a node, which no call does yet
  'method_not_allowed',
  'operation_not_found',
  // of the pages, which are no calls
  'pages_not_built',
  'peer_ended',
  'peer_not_allowed',
  'peer_revoked',
  // told in the record of a run
  'window_ended',
];

test('every error of the table is one of a call', () => {
  const declared = new Set(
    operations.flatMap(({ spec }) =>
      Object.keys(spec.responses).flatMap(status => declaredKeys(spec, Number(status))),
    ),
  );
  const others = Object.keys(ERRORS).filter(key => !declared.has(key));
  expect(others.sort()).toEqual([...NEVER_ANSWERED]);
});

test('the guest command needs emu_cmd', () => {
  const { spec } = operations.find(({ path }) => path.endsWith('/guest-command/'))!;
  expect(spec.requestBody?.content['application/json']?.schema?.required).toEqual(['emu_cmd']);
});

const RULES = {
  'no-invalid-schema-examples': 'error',
  'no-invalid-media-type-examples': 'error',
  'operation-operationId-unique': 'error',
  'parameter-description': 'error',
  // the paths of this API family end in a slash
  'no-path-trailing-slash': 'off',
  // no UUID reads "download"
  'no-ambiguous-paths': 'off',
  // a list may answer some fields of its record only, so it does not refer to the record
  'no-unused-components': 'off',
};

test('a public validator accepts it: its structure, its references, and every example by its schema', async () => {
  const linter = createRequire(import.meta.url)('@redocly/openapi-core') as Linter;
  const config = await linter.createConfig({ extends: ['recommended'], rules: RULES });
  const problems = await linter.lintFromString({ source: JSON.stringify(document), config });
  const told = problems.map(
    ({ ruleId, message, location }) => `${ruleId} ${location[0]?.pointer}: ${message}`,
  );
  expect(told).toEqual([]);
});
