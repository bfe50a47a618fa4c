import { Button, FileUpload, Form } from '@patternfly/react-core';
import { useState } from 'react';
import type { Domain } from '../../../api/client.ts';
import { Confirm } from '../../../parts/confirm.tsx';
import { Field, TextField } from '../../../parts/fields.tsx';
import { askingBeforeLeaving } from '../../../parts/leaving.ts';
import { Failure } from '../../../parts/shown.tsx';
import { useWords } from '../../../texts/index.tsx';
import { base64Of, bytesOf } from './arguments.ts';
import { runCommand } from './command.ts';

/** Of one request; more take too long where many wait. */
const PIECE_BYTES = 512 * 1024;
/** What a browser holds in its memory for this. */
const MOST_BYTES = 256 * 1024 * 1024;

/** While a file goes its way. */
interface Way {
  told: (bytes: number) => void;
  signal: AbortSignal;
}

/** One file at a time, through the guest agent: out of the guest, and into it. */
export function GuestFiles({ domain }: { domain: Domain }) {
  const { texts, format } = useWords();
  const words = texts.guest;
  const [path, setPath] = useState('');
  const [file, setFile] = useState<File | undefined>();
  const [said, setSaid] = useState('');
  const [error, setError] = useState<unknown>(undefined);
  /** Undefined: nothing goes on. */
  const [present, setPresent] = useState<AbortController | undefined>();
  const [asks, setAsks] = useState<{ to: string; source: File } | undefined>();
  const isBusy = present !== undefined;
  const attempt = async (work: (way: Way) => Promise<string>) => {
    const controller = new AbortController();
    const { signal } = controller;
    const told = (bytes: number) => setSaid(words.soFar(format.size(bytes)));
    setPresent(controller);
    setError(undefined);
    setSaid('');
    try {
      setSaid(await askingBeforeLeaving(() => work({ told, signal })));
    } catch (refused) {
      if (!signal.aborted) setError(refused);
      setSaid(signal.aborted ? words.stopped : '');
    }
    setPresent(undefined);
  };
  const fetch = async (way: Way) => {
    const pieces = await readFile(domain.id, path, way);
    keep(pieces, path.split(/[/\\]/).at(-1) || 'file');
    return words.fetched(path);
  };
  const send = async (to: string, source: File, way: Way) => {
    await writeFile({ id: domain.id, path: to, source }, way);
    return words.sent(to);
  };
  return (
    <Form onSubmit={event => event.preventDefault()}>
      <TextField
        id="guest-path"
        label={words.path}
        help={words.pathHelp}
        isRequired
        value={path}
        change={setPath}
      />
      <Field id="guest-file" label={words.file}>
        <FileUpload
          id="guest-file"
          filename={file?.name ?? ''}
          filenamePlaceholder={words.drop}
          browseButtonText={words.browse}
          clearButtonText={texts.list.clear}
          filenameAriaLabel={words.file}
          hideDefaultPreview
          onFileInputChange={(_event, chosen) => setFile(chosen)}
          onClearClick={() => setFile(undefined)}
        />
      </Field>
      <span className="vk-row">
        <Button variant="secondary" isDisabled={isBusy || path === ''} onClick={() => void attempt(fetch)}>
          {words.fetch}
        </Button>
        <Button
          variant="secondary"
          isDisabled={isBusy || path === '' || file === undefined}
          onClick={() => file && setAsks({ to: path, source: file })}
        >
          {words.send}
        </Button>
        {isBusy && (
          <Button variant="secondary" onClick={() => present.abort()}>
            {words.stop}
          </Button>
        )}
      </span>
      <p role="status">{said}</p>
      {error !== undefined && <Failure error={error} />}
      {asks !== undefined && (
        <Confirm
          title={words.sendTitle(asks.to)}
          text={words.sendText(asks.source.name)}
          submit={words.send}
          act={async () => void attempt(way => send(asks.to, asks.source, way))}
          close={() => setAsks(undefined)}
        />
      )}
    </Form>
  );
}

async function withHandle<T>(id: string, path: string, mode: string, work: (handle: number) => Promise<T>) {
  const handle = Number(await runCommand(id, 'guest-file-open', { path, mode }));
  try {
    return await work(handle);
  } finally {
    await runCommand(id, 'guest-file-close', { handle }).catch(() => {
      // what went wrong before is told; the agent closes it when it ends
    });
  }
}

interface Piece {
  count: number;
  'buf-b64': string;
  eof: boolean;
}

function readFile(id: string, path: string, { told, signal }: Way): Promise<Uint8Array<ArrayBuffer>[]> {
  return withHandle(id, path, 'r', async handle => {
    const pieces: Uint8Array<ArrayBuffer>[] = [];
    for (let total = 0; total <= MOST_BYTES; told(total)) {
      signal.throwIfAborted();
      const piece = (await runCommand(id, 'guest-file-read', { handle, count: PIECE_BYTES })) as Piece;
      if (piece.count > 0) pieces.push(bytesOf(piece['buf-b64']));
      total += piece.count;
      if (piece.eof || piece.count === 0) return pieces;
    }
    throw new Error(`> ${MOST_BYTES}`);
  });
}

interface Written {
  id: string;
  path: string;
  source: File;
}

function writeFile({ id, path, source }: Written, { told, signal }: Way): Promise<void> {
  return withHandle(id, path, 'w', async handle => {
    for (let at = 0; at < source.size; told(at)) {
      signal.throwIfAborted();
      const bytes = new Uint8Array(await source.slice(at, at + PIECE_BYTES).arrayBuffer());
      const { count } = (await runCommand(id, 'guest-file-write', {
        handle,
        'buf-b64': base64Of(bytes),
      })) as Piece;
      if (count === 0) throw new Error(`0 / ${bytes.length}`);
      at += count;
    }
  });
}

/** The browser keeps it under this name. */
function keep(pieces: Uint8Array<ArrayBuffer>[], name: string): void {
  const url = URL.createObjectURL(new Blob(pieces, { type: 'application/octet-stream' }));
  const link = Object.assign(document.createElement('a'), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
