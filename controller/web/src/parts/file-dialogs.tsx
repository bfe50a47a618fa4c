/** What is asked for before a backup file is exported or trimmed. */

import { FormSelectOption } from '@patternfly/react-core';
import { useState } from 'react';
import { AT_ONCE, api, type BackupFile, begun, newKey } from '../api/client.ts';
import { useSession } from '../session.tsx';
import { useWords } from '../texts/index.tsx';
import { useAllPools } from './all.ts';
import { Dialog } from './confirm.tsx';
import { CheckField, NumberField, SelectField, TextField } from './fields.tsx';
import { PoolOptions } from './pool-options.tsx';
import { useToasts } from './toasts.tsx';

interface FileDialogProps {
  file: BackupFile;
  close: () => void;
}

const DEFAULT_LEVEL = 3;

type Format = 'ova' | 'ovf' | 'qcow2';

export function ExportFile({ file, close }: FileDialogProps) {
  const { texts, format } = useWords();
  const words = texts.files;
  const { started } = useToasts();
  const { may } = useSession();
  const [kind, setKind] = useState<Format>('ova');
  const [state, setState] = useState('');
  const [datapool, setPool] = useState('');
  const [filename, setName] = useState('');
  const [compress, setCompress] = useState(false);
  const [allow_foreign, setForeign] = useState(false);
  const [key] = useState(newKey);
  const pools = useAllPools();
  const act = async () => {
    const body = {
      format: kind,
      ...(state === '' ? {} : { state }),
      ...(datapool === '' ? {} : { datapool }),
      ...(filename === '' ? {} : { filename }),
      ...(compress && kind === 'qcow2' ? { compress } : {}),
      ...(allow_foreign ? { allow_foreign } : {}),
      idempotency_key: key,
    };
    const params = { path: { id: file.id }, query: AT_ONCE };
    started(await begun(api.POST('/api/library/{id}/export/', { params, body })));
  };
  return (
    <Dialog title={words.exportTitle(file.filename)} submit={words.export} act={act} close={close}>
      {fault => (
        <>
          <SelectField
            id="export-format"
            label={words.format}
            options={(['ova', 'ovf', 'qcow2'] as const).map(one => [one, words.formats[one]] as const)}
            value={kind}
            error={fault('format')}
            change={setKind}
          />
          <SelectField
            id="export-state"
            label={texts.restore.point}
            options={[
              ['', texts.restore.newest],
              ...file.states
                .toReversed()
                .map(
                  ({ number, created }) => [String(number), `${number}. ${format.time(created)}`] as const,
                ),
            ]}
            value={state}
            error={fault('state')}
            change={setState}
          />
          <SelectField
            id="export-pool"
            label={texts.common.pool}
            options={[]}
            value={datapool}
            error={fault('datapool')}
            change={setPool}
          >
            <FormSelectOption value="" label={words.samePool} />
            <PoolOptions pools={pools.data?.results} />
          </SelectField>
          <TextField
            id="export-name"
            label={texts.common.name}
            help={words.exportName}
            maxLength={120}
            value={filename}
            error={fault('filename')}
            change={setName}
          />
          {kind === 'qcow2' && (
            <CheckField
              id="export-compress"
              label={words.compressClusters}
              isOn={compress}
              change={setCompress}
            />
          )}
          {may('backup.restore_foreign') && (
            <CheckField
              id="export-foreign"
              label={words.exportForeign}
              isOn={allow_foreign}
              change={setForeign}
            />
          )}
        </>
      )}
    </Dialog>
  );
}

/** Of another form: compressed, or plain. */
export function ConvertFile({ file, close }: FileDialogProps) {
  const { texts } = useWords();
  const words = texts.files;
  const { started } = useToasts();
  const { may } = useSession();
  const action = file.compressed ? 'unpack' : 'compress';
  const [datapool, setPool] = useState('');
  const [level, setLevel] = useState(DEFAULT_LEVEL);
  const [keeps, setKeeps] = useState(false);
  const [sign, setSign] = useState(false);
  const [key] = useState(newKey);
  const pools = useAllPools();
  const act = async () => {
    const options = {
      ...(datapool === '' ? {} : { datapool }),
      ...(keeps ? { keep_source: true } : {}),
      ...(sign ? { sign } : {}),
      idempotency_key: key,
    };
    const params = { path: { id: file.id }, query: AT_ONCE };
    const call =
      action === 'compress'
        ? api.POST('/api/library/{id}/compress/', { params, body: { ...options, level } })
        : api.POST('/api/library/{id}/unpack/', { params, body: options });
    started(await begun(call));
  };
  return (
    <Dialog title={`${words[action]}: ${file.filename}`} submit={words[action]} act={act} close={close}>
      {fault => (
        <>
          <SelectField
            id="convert-pool"
            label={texts.common.pool}
            options={[['', words.inPlace]]}
            value={datapool}
            error={fault('datapool')}
            change={setPool}
          >
            <PoolOptions pools={pools.data?.results} />
          </SelectField>
          {action === 'compress' && (
            <NumberField
              id="convert-level"
              label={words.level}
              min={1}
              max={9}
              value={level}
              error={fault('level')}
              change={setLevel}
            />
          )}
          <CheckField
            id="convert-keep"
            label={words.keepSource}
            error={fault('keep_source')}
            isOn={keeps}
            change={setKeeps}
          />
          {may('backup.sign') && (
            <CheckField
              id="convert-sign"
              label={words.sign}
              error={fault('sign')}
              isOn={sign}
              change={setSign}
            />
          )}
        </>
      )}
    </Dialog>
  );
}

export function TrimFile({ file, close }: FileDialogProps) {
  const { texts } = useWords();
  const words = texts.files;
  const { started } = useToasts();
  const count = file.states.length;
  const [keep_states, setKeep] = useState(Math.max(1, count - 1));
  const [key] = useState(newKey);
  const act = async () => {
    const params = { path: { id: file.id }, query: AT_ONCE };
    const body = { keep_states, idempotency_key: key };
    started(await begun(api.POST('/api/library/{id}/trim/', { params, body })));
  };
  return (
    <Dialog
      title={words.trimTitle(file.filename)}
      submit={words.trim}
      isDanger
      isReady={keep_states < count}
      act={act}
      close={close}
    >
      {fault => (
        <NumberField
          id="trim-keep"
          label={words.keepPoints}
          help={words.trimText(Math.max(0, count - keep_states))}
          min={1}
          max={count}
          value={keep_states}
          error={fault('keep_states')}
          change={setKeep}
        />
      )}
    </Dialog>
  );
}
