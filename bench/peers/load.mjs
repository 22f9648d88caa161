/** node peers/load.mjs NAME FOLDER */
const [name, folder] = process.argv.slice(2);
const { load } = await import(`./${name}.mjs`);
await load(folder);
