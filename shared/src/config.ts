import { readFileSync } from 'node:fs';
import { parseDocument } from 'yaml';
import type { z } from 'zod';

/** What is wrong with a settings file; printed at start, before anything runs. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

/**
 * Reads and validates a YAML settings file. Unknown keys are errors (use strictObject in the schema).
 * @throws ConfigError naming the file, the key and what is wrong with it.
 */
export function loadConfig<T extends z.ZodType>(path: string, schema: T): z.infer<T> {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw new ConfigError(`cannot read the settings file ${path}: ${(error as Error).message}`);
  }
  return parseConfig(text, path, schema);
}

/** As `loadConfig`, for a text already read. */
export function parseConfig<T extends z.ZodType>(text: string, path: string, schema: T): z.infer<T> {
  const document = parseDocument(text);
  const broken = document.errors[0];
  if (broken) throw new ConfigError(`${path} is not valid YAML: ${broken.message}`);
  const result = schema.safeParse(document.toJS() ?? {});
  if (result.success) return result.data;
  const problems = result.error.issues.map(issue => `  ${issue.path.join('.') || '(top)'}: ${issue.message}`);
  throw new ConfigError(`${path} has settings that cannot be used:\n${problems.join('\n')}`);
}
