/**
 * The operationId of a call, from its method and path: the words of the path, and what is done when the path does not say it.
 * `GET /api/domains/` is `domains_list`, `POST /api/domains/{id}/start/` is `domains_start`.
 */

export interface Call {
  method: string;
  path: string;
  /** It answers a page of records. */
  isList: boolean;
  /** The same path can be read. */
  isReadable: boolean;
}

export function operationId({ method, path, isList, isReadable }: Call): string {
  const parts = path.split('/').filter(part => part !== '' && part !== 'api');
  const words = parts.filter(part => !part.startsWith('{')).map(part => part.replaceAll(/[^a-z0-9]+/g, '_'));
  return [...words, ...doing({ method, isList, isReadable, isItem: parts.at(-1)!.startsWith('{') })].join(
    '_',
  );
}

function doing({ method, isList, isReadable, isItem }: Omit<Call, 'path'> & { isItem: boolean }): string[] {
  if (method === 'get') return [isList ? 'list' : 'get'];
  if (method === 'put') return isItem ? ['update'] : [];
  // what is posted where one reads is made there; other paths end in what is done
  return isReadable ? ['create'] : [];
}
