/**
 * What an operation tells when it has succeeded: one message per shape, and the JSON of it, which is what REST shows of many kinds and what
 * agents and journals of before have alone.
 */
import type { Any } from './gen/google/protobuf/any.ts';
import { ShowBackupResponse } from './gen/virtkeep/agent/v1/backup.ts';
import { DiskSource } from './gen/virtkeep/agent/v1/disk.ts';
import { SavedState } from './gen/virtkeep/agent/v1/domain.ts';
import type { Operation } from './gen/virtkeep/agent/v1/operation.ts';
import { OperationResult } from './gen/virtkeep/agent/v1/operation_result.ts';
import { BackupFile } from './gen/virtkeep/agent/v1/pool.ts';
import { MiB } from './units.ts';

/** The result of an operation of any kind that has one. */
export type Result = NonNullable<OperationResult['result']>;

/** Its name: the operation's kind in camel case, but for `scanApart`. */
export type ResultCase = Result['$case'];

export type ResultOf<C extends ResultCase> = { [R in Result as R['$case']]: R['value'] }[C];

type Reported = Pick<Operation, 'kind' | 'warnings' | 'result' | 'resultJson'>;

/** A scan whose files are not told apart may tell tens of MiB; twice that would not go into one message. */
const MAX_PACKED_BYTES = 4 * MiB;

const TYPE_URL = 'type.googleapis.com/virtkeep.agent.v1.OperationResult';

/** The fields of an operation that has this result: as message and as JSON, which earlier controllers read; a large one as JSON alone. */
export function resultFields(result: Result | undefined): { result: Any | undefined; resultJson: string } {
  const value = Buffer.from(OperationResult.encode({ result }).finish());
  return {
    result: result && value.length <= MAX_PACKED_BYTES ? { typeUrl: TYPE_URL, value } : undefined,
    // as whoever hears it reads it: the order of names is that of the message
    resultJson: JSON.stringify(jsonOf(OperationResult.decode(value).result)),
  };
}

/**
 * The result of an operation of this kind.
 * @throws Error it told none, or what is none of this kind
 */
export function resultOf<C extends ResultCase>(operation: Reported, $case: C): ResultOf<C> {
  const result: { $case: string; value: unknown } | undefined = read(operation);
  if (isOf(result, $case)) return result.value;
  throw new Error(`an operation of the kind ${operation.kind} tells no result of ${$case}`);
}

/** Whether it tells a result of this name, as a message. */
export const hasResult = (operation: Reported, $case: ResultCase): boolean =>
  unpacked(operation)?.$case === $case;

function isOf<C extends ResultCase>(
  result: { $case: string; value: unknown } | undefined,
  $case: C,
): result is { $case: C; value: ResultOf<C> } {
  return result?.$case === $case;
}

/** A part of a result that is never left out. @throws Error it is */
export function required<T>(part: T | undefined, name: string): T {
  if (part === undefined) throw new Error(`a result lacks its ${name}`);
  return part;
}

/** The result of an operation as JSON; an empty object when it told none, or nothing that can be read. */
export function resultJson(operation: Reported): unknown {
  try {
    const result = unpacked(operation);
    return result ? jsonOf(result) : parsed(operation.resultJson);
  } catch {
    return {};
  }
}

function read(operation: Reported): Result | undefined {
  return unpacked(operation) ?? readJson(operation);
}

/** Undefined for what an agent of before told, and of a kind that only later agents know. */
function unpacked({ result }: Reported): Result | undefined {
  return result && OperationResult.decode(result.value).result;
}

function readJson(operation: Reported): Result | undefined {
  const json = parsed(operation.resultJson);
  // a message made of nothing would say that there is nothing: no files, say
  if (Object.keys(json).length === 0) return undefined;
  return OperationResult.fromJSON({ [operation.kind]: ofBefore(operation, json) }).result;
}

function parsed(json: string): object {
  try {
    const value: unknown = json === '' ? {} : JSON.parse(json);
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}

/** The JSON of an agent of before, with what it did not tell yet, as the message has it. */
function ofBefore({ kind, warnings }: Reported, json: object): object {
  if (kind === 'attach_disk') return { warnings, ...json };
  if (kind === 'verify' && 'restorable_states' in json)
    return { ...json, restorable_states: { numbers: json.restorable_states } };
  return json;
}

/** The one place that knows where the JSON is not the message with its names in snake case. */
function jsonOf(result: Result | undefined): object {
  if (result === undefined) return {};
  switch (result.$case) {
    case 'backup':
    case 'recompress':
    case 'recompressCopy':
    case 'convertBackup':
    case 'exportBackup':
    case 'trim': {
      const { file, ...more } = result.value;
      return { file: file && BackupFile.toJSON(file), ...snakeCased(more) };
    }
    case 'scanPool':
    case 'convertAll': {
      const { files, ...more } = result.value;
      return { files: files.map(file => BackupFile.toJSON(file)), ...snakeCased(more) };
    }
    case 'scanApart':
      // an earlier controller must not read of no files: it refuses an empty object (readJson)
      return {};
    case 'refreshBackup':
      return { shown: result.value.shown && ShowBackupResponse.toJSON(result.value.shown) };
    case 'createSnapshot':
      return { snapshot: result.value.snapshot && SavedState.toJSON(result.value.snapshot) };
    case 'lendDisk': {
      const { source, snapshot } = result.value;
      return { source: source && DiskSource.toJSON(source), snapshot: snapshot ?? null };
    }
    case 'attachDisk':
      return { ...snakeCased(result.value), snapshot: result.value.snapshot ?? null };
    case 'verify':
      return { ...snakeCased(result.value), restorable_states: result.value.restorableStates?.numbers };
    default:
      return snakeCased(result.value);
  }
}

/** Numbers as they are; what is absent stays so, and keeps its place. */
function snakeCased(message: object): Record<string, unknown> {
  const entries = Object.entries(message).map(([key, value]) => [snakeCase(key), plain(value)] as const);
  return Object.fromEntries(entries);
}

const snakeCase = (key: string) => key.replace(/[A-Z]/g, letter => `_${letter.toLowerCase()}`);

function plain(value: unknown): unknown {
  if (typeof value === 'bigint') return Number(value);
  if (Array.isArray(value)) return value.map(plain);
  return typeof value === 'object' && value !== null ? snakeCased(value) : value;
}
