/** Errors as answers of the document: one response for each status, with an example for each key. */
import { ERRORS, type ErrorKey, httpStatusOf, VirtkeepError } from '@virtkeep/shared/errors';
import { envelope } from '../errors.ts';
import { STORY } from './story.ts';

const WORDS: Readonly<Record<number, string>> = {
  400: 'The request is wrong',
  401: 'Nobody is logged in',
  403: 'The caller may not do this',
  404: 'What the request names is not there',
  409: 'The present state of things refuses it',
  413: 'The body is too large',
  415: 'The body is of another type',
  416: 'The range lies outside',
  429: 'Too much was asked',
  500: 'The service failed',
  502: 'The hypervisor, the guest or the storage failed or refused',
  503: 'It cannot be done just now',
  504: 'No answer came in time',
};

/** What the texts of errors speak of, in examples. */
const WORDS_OF_PARAMS: Readonly<Record<string, string>> = {
  ...STORY,
  id: STORY.domain,
  domain: 'web-1',
  other: 'n2',
  reason: 'it is not there',
  field: 'datapool',
  operation: STORY.task,
  kind: 'backup',
  path: `/srv/backups/${STORY.file}.tar`,
  member: 'vda.qcow2',
  state: '3',
  seconds: '30',
  limit: '1000',
  limit_bytes: '1048576',
  bytes: '2097152',
  size: '10485760',
  free_bytes: '1048576',
  needed_bytes: '10485760',
  request_id: STORY.request,
};

/** Response objects by status. */
export function errorAnswers(keys: readonly ErrorKey[]): Record<string, object> {
  const byStatus = Map.groupBy(keys, httpStatusOf);
  return Object.fromEntries(
    [...byStatus].map(([status, ofStatus]) => [
      String(status),
      {
        description: `${WORDS[status]}: ${ofStatus.map(key => `\`${key}\``).join(', ')}.`,
        content: {
          'application/json': {
            schema: { $ref: '#/components/schemas/Error' },
            examples: Object.fromEntries(
              ofStatus.map(key => [key, { $ref: `#/components/examples/${key}` }]),
            ),
          },
        },
      },
    ]),
  );
}

/** The examples that those answers refer to. */
export function errorExamples(keys: Iterable<ErrorKey>): Record<string, object> {
  return Object.fromEntries([...new Set(keys)].sort().map(key => [key, errorExample(key)]));
}

function errorExample(key: ErrorKey): object {
  const { text } = ERRORS[key];
  const names = [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name!);
  const params = Object.fromEntries(names.map(name => [name, WORDS_OF_PARAMS[name] ?? name]));
  return { summary: text, value: envelope([new VirtkeepError(key, params)], STORY.request) };
}
