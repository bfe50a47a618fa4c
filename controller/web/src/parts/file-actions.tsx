/** What can be done with a backup file, wherever it is shown. */
import { Label } from '@patternfly/react-core';
import { useState } from 'react';
import { AT_ONCE, answer, api, type BackupFile, begun, keyFor } from '../api/client.ts';
import { useWords } from '../texts/index.tsx';
import { type Action, ActionMenu } from './actions.tsx';
import { AskText, Confirm } from './confirm.tsx';
import { ConvertFile, ExportFile, TrimFile } from './file-dialogs.tsx';
import { kindsOf } from './import-kinds.ts';
import { fileReason } from './reasons.ts';
import { useToasts } from './toasts.tsx';
import { useAsked } from './use-asked.ts';

type Work = 'verify' | 'refresh' | 'remove';

function work(id: string, action: Work) {
  const path = `/api/library/{id}/${action}/` as const;
  return begun(
    api.POST(path, {
      params: { path: { id }, query: AT_ONCE },
      body: { idempotency_key: keyFor(`/api/library/${id}/${action}/`) },
    }),
  );
}

const update = (id: string, body: { description?: string; protected?: boolean }) =>
  answer(api.PUT('/api/library/{id}/', { params: { path: { id } }, body }));

export function FileMenu({ file }: { file: BackupFile }) {
  const { texts } = useWords();
  const words = texts.files;
  const asked = useAsked();
  const { attempt, started } = useToasts();
  const [dialog, setDialog] = useState<'remove' | 'describe' | 'convert' | 'export' | 'trim' | undefined>();
  const { id, filename } = file;
  const close = () => setDialog(undefined);
  const reason = (action: string) => fileReason(action, file, asked);
  const run = async (action: Work) => started(await work(id, action));
  const simple = (action: Work): Action => ({
    key: action,
    label: words[action],
    reason: reason(action),
    act: () => attempt(() => run(action)),
  });
  const isArchive = file.type === 'tar';
  const conversion = file.compressed ? 'unpack' : 'compress';
  const importReason = kindsOf(file).length > 0 ? undefined : (reason('import_disk') ?? texts.reasons.state);
  const actions: Action[] = [
    ...(isArchive
      ? [{ key: 'restore', label: words.restore, reason: reason('restore'), to: `/restore?file=${id}` }]
      : [{ key: 'import', label: texts.import.title, reason: importReason, to: `/import?file=${id}` }]),
    simple('verify'),
    simple('refresh'),
    {
      key: 'convert',
      label: words[conversion],
      reason: reason(conversion),
      act: () => setDialog('convert'),
    },
    { key: 'describe', label: words.describe, reason: reason('update'), act: () => setDialog('describe') },
    {
      key: 'protect',
      label: file.protected ? words.unprotect : words.protect,
      reason: reason('update'),
      act: () => attempt(() => update(id, { protected: !file.protected })),
    },
    {
      key: 'download',
      label: words.download,
      reason: reason('download'),
      download: `/api/library/${id}/download/`,
    },
    {
      key: 'export',
      label: words.export,
      reason: reason('export'),
      act: () => setDialog('export'),
    },
    {
      key: 'trim',
      label: words.trim,
      reason: file.states.length < 2 ? words.onePoint : reason('update'),
      act: () => setDialog('trim'),
      isDanger: true,
    },
    {
      key: 'remove',
      label: words.remove,
      reason: reason('remove'),
      act: () => setDialog('remove'),
      isDanger: true,
    },
  ];
  return (
    <>
      <ActionMenu of={filename} actions={actions} />
      {dialog === 'remove' && (
        <Confirm
          title={words.removeTitle(filename)}
          text={words.removeText(file.states.length)}
          submit={words.remove}
          name={filename}
          act={() => run('remove')}
          close={close}
        />
      )}
      {dialog === 'convert' && <ConvertFile file={file} close={close} />}
      {dialog === 'export' && <ExportFile file={file} close={close} />}
      {dialog === 'trim' && <TrimFile file={file} close={close} />}
      {dialog === 'describe' && (
        <AskText
          title={words.describeTitle(filename)}
          label={texts.common.description}
          before={file.description}
          act={description => update(id, { description })}
          close={close}
        />
      )}
    </>
  );
}

/** What is particular about it. */
export function FileMarks({ file }: { file: BackupFile }) {
  const { texts, format } = useWords();
  const words = texts.files;
  const { hash_sum: hash } = file;
  const marks = [
    file.protected ? words.protected : '',
    file.compressed ? words.compressed : '',
    file.can_be_incremental ? words.extendable : '',
    hash?.ok ? words.verified(format.age(hash.verified_at)) : '',
    hash?.ok === null && hash.verified_at !== null
      ? words.readWithoutProof(format.age(hash.verified_at))
      : '',
  ].filter(mark => mark !== '');
  return (
    <span className="vk-row">
      {marks.map(mark => (
        <Label key={mark} isCompact>
          {mark}
        </Label>
      ))}
      {hash?.ok === false && (
        <Label isCompact status="danger">
          {words.broken}
        </Label>
      )}
    </span>
  );
}
