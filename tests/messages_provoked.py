"""Calls and commands that provoke error messages: one on each line, a `$` begins a command.

`short` stands for hidden_layer_sizes=(3,), selection=False, max_iter=1, random_state=0;
`test_messages.scene` makes the other names. `changed` returns a copy with other attributes.
"""

AREAS = {
    "Parameters of the estimators": """
LipschitzRegressor(hidden_layer_sizes=(25, 0)).fit(X, y)
LipschitzRegressor(hidden_layer_sizes="25, 30").fit(X, y)
LipschitzRegressor(hidden_layer_sizes=2.5).fit(X, y)
LipschitzRegressor(hidden_layer_sizes=(True, 3)).fit(X, y)
LipschitzRegressor(hidden_layer_sizes=[(25, 30), (15,)]).fit(X, y)
LipschitzRegressor(activation="gelu").fit(X, y)
LipschitzRegressor(activation="logistic").fit(X, y)
LipschitzRegressor(activation=jnp.tanh).fit(X, y)
LipschitzRegressor(activation=["relu", "tanh"]).fit(X, y)
LipschitzRegressor(method="adam").fit(X, y)
LipschitzRegressor(method=1).fit(X, y)
LipschitzRegressor(method=["steepest", "curvature"]).fit(X, y)
LipschitzRegressor(method=("steepest",)).fit(X, y)
LipschitzRegressor(method=("curvature", "steepest")).fit(X, y)
LipschitzRegressor(method=("steepest", "newton")).fit(X, y)
LipschitzRegressor(method=(steps.Curvature(), directions.Steepest())).fit(X, y)
LipschitzRegressor(method=(directions.Steepest, steps.Curvature)).fit(X, y)
LipschitzRegressor(method=("auto", steps.SmoothMajorant())).fit(X, y)
LipschitzRegressor(scaling="minmax").fit(X, y)
LipschitzRegressor(scaling=False).fit(X, y)
LipschitzRegressor(scaling=StandardScaler()).fit(X, y)
LipschitzRegressor(lipschitz=-1).fit(X, y)
LipschitzRegressor(lipschitz="5").fit(X, y)
LipschitzRegressor(lipschitz=5, method="ad").fit(X, y)
LipschitzRegressor(lipschitz=5, scaling="paper").fit(X, y)
LipschitzRegressor(loss="mse").fit(X, y)
LipschitzRegressor(loss="softmax").fit(X, y)
LipschitzRegressor(loss=losses.Huber).fit(X, y)
LipschitzRegressor(loss=losses.Logistic()).fit(X, y)
LipschitzRegressor(loss=losses.SoftmaxCrossEntropy()).fit(X, y)
LipschitzRegressor(loss=losses.SoftmaxCrossEntropy()).fit(X, X)
LipschitzRegressor(loss=losses.Huber(delta=0)).fit(X, y)
LipschitzRegressor(loss=losses.Huber(delta="1")).fit(X, y)
LipschitzRegressor(radius=0).fit(X, y)
LipschitzRegressor(radius=(1, 2)).fit(X, y)
LipschitzRegressor(radius="large").fit(X, y)
LipschitzRegressor(max_iter=-1).fit(X, y)
LipschitzRegressor(max_iter=1e3).fit(X, y)
LipschitzRegressor(max_iter="200").fit(X, y)
LipschitzRegressor(selection="yes").fit(X, y)
LipschitzRegressor(cv=1).fit(X, y)
LipschitzRegressor(cv=True).fit(X, y)
LipschitzRegressor(cv="five").fit(X, y)
LipschitzRegressor(cv=0.2).fit(X, y)
LipschitzRegressor(cv=None).fit(X, y)
LipschitzRegressor(cv=[(range(6), [])]).fit(X, y)
LipschitzRegressor(cv=iter([])).fit(X, y)
LipschitzRegressor(cv="time").fit(X, y, groups=labels)
LipschitzRegressor(cv=[(range(6), [6, 12])]).fit(X, y)
LipschitzRegressor(cv=[(range(6), [6.0, 7.0])]).fit(X, y)
LipschitzRegressor(target_gain=0).fit(X, y)
LipschitzRegressor(target_gain=np.inf).fit(X, y)
LipschitzRegressor(target_gain="large").fit(X, y)
LipschitzRegressor(ensemble=0).fit(X, y)
LipschitzRegressor(ensemble=2.5).fit(X, y)
LipschitzRegressor(ensemble="all").fit(X, y)
LipschitzRegressor(tol=-1).fit(X, y)
LipschitzRegressor(tol="small").fit(X, y)
LipschitzRegressor(batch_size=0).fit(X, y)
LipschitzRegressor(batch_size="all").fit(X, y)
LipschitzRegressor(early_stopping="yes", validation_fraction=2).fit(X, y)
LipschitzRegressor(validation_fraction="0.1").fit(X, y)
LipschitzRegressor(n_iter_no_change=0).fit(X, y)
LipschitzRegressor(saturation="box").fit(X, y)
LipschitzRegressor(saturation=True).fit(X, y)
LipschitzRegressor(saturation=None).fit(X, y)
LipschitzRegressor(saturation="both", scaling="paper").fit(X, y)
LipschitzRegressor(saturation="inputs", method="ad").fit(X, y)
LipschitzClassifier(saturation="outputs")
replace(model.model_, scaling=paper, saturation=Saturation.fit("inputs", X, y[:, None]))
LipschitzRegressor(callbacks=print).fit(X, y)
LipschitzRegressor(callbacks=["print"]).fit(X, y)
LipschitzRegressor(dtype="float16").fit(X, y)
LipschitzRegressor(dtype=None).fit(X, y)
LipschitzRegressor(random_state="seed").fit(X, y)
LipschitzRegressor(learning_rate=0.1)
LipschitzRegressor((3,), "relu", "ad")
LipschitzRegressor().set_params(alpha=1)
LipschitzClassifier(loss="squared").fit(X, labels)
LipschitzClassifier(loss=None).fit(X, labels)
LipschitzClassifier(loss=losses.Huber).fit(X, labels)
""",
    "Data for fit": """
LipschitzRegressor().fit(X)
LipschitzRegressor().fit(y, X)
LipschitzRegressor().fit(X.T, y)
LipschitzRegressor().fit(X[:, 0], y)
LipschitzRegressor().fit(X, y[:5])
LipschitzRegressor().fit(X[:0], y[:0])
LipschitzRegressor().fit(hole, y)
LipschitzRegressor().fit(X, hole)
LipschitzRegressor().fit(X, labels)
LipschitzRegressor().fit([["a", "b"], ["c", "d"]], [1, 2])
LipschitzRegressor().fit(X + 1j, y)
LipschitzRegressor().fit(pl.read_csv("flight.csv"), y)
LipschitzRegressor(early_stopping=True).fit(X[:1], y[:1])
LipschitzRegressor(early_stopping=True, random_state=0).fit(X, y, np.eye(12)[0])
LipschitzRegressor().fit(X, y, np.ones(5))
LipschitzRegressor().fit(X, y, -np.ones(12))
LipschitzRegressor().fit(X, y, np.zeros(12))
LipschitzRegressor().fit(X, y, labels)
LipschitzRegressor().fit(X, y, groups=labels[:5])
LipschitzRegressor(**short, callbacks=[interrupt]).fit(X, y)
LipschitzRegressor(**short).fit(X, y * 1e200)
LipschitzRegressor(**short).fit(X * 1e200, y)
LipschitzRegressor(**short).fit(X, y * 1e-165)
LipschitzClassifier().fit(X, y)
LipschitzClassifier().fit(X, np.ones(12))
LipschitzClassifier().fit(X[:1], labels[:1])
LipschitzClassifier().fit(X, X > 0)
LipschitzClassifier(early_stopping=True).fit(X, ["rare"] + 11 * ["usual"])
LipschitzClassifier().partial_fit(X, labels, classes=["low"])
LipschitzClassifier().partial_fit(X, labels, classes=["low", "medium"])
LipschitzClassifier().partial_fit(X, labels, classes=[])
LipschitzClassifier().partial_fit(X, labels, classes=[0.5, 1.5])
LipschitzClassifier().fit(X, [1, "1", None] * 4)
LipschitzClassifier().fit(X, [-1, 2**63] * 6)
""",
    "Data larger than memory": """
LipschitzRegressor().fit(mapped[:, 0], y)
LipschitzRegressor().fit(mapped, y[:5])
LipschitzRegressor().fit(mapped, y, np.ones(3))
LipschitzRegressor().fit("flight.csv", "fz")
LipschitzRegressor().fit("missing.parquet", "fz")
LipschitzRegressor().fit("folder", "fz")
LipschitzRegressor().fit("broken.parquet", "fz")
LipschitzRegressor().fit("flight.parquet")
LipschitzRegressor().fit("flight.parquet", y)
LipschitzRegressor().fit("flight.parquet", "force")
LipschitzRegressor().fit("flight.parquet", "fz")
LipschitzRegressor().fit("flight.parquet", "fz", np.ones(12))
LipschitzRegressor().fit(iter([(X, y)]), y)
LipschitzRegressor().fit(iter([(X, y)]), None, np.ones(12))
LipschitzRegressor().fit(iter([]))
LipschitzRegressor().fit(iter([X]))
LipschitzRegressor().fit(iter([(X, y[:5])]))
LipschitzRegressor().fit(iter([(y, X)]))
LipschitzRegressor().fit([(X, y[:5])])
LipschitzRegressor().fit([(X, y)], None, np.ones(12))
LipschitzRegressor().fit([(1.0, 2.0), (3.0, 4.0)])
""",
    "Resumed and continued fits": """
LipschitzRegressor(resume=True).fit(X, y)
LipschitzRegressor(checkpoint="there", warm_start=True).fit(X, y)
LipschitzRegressor(callbacks=[callbacks.CSV("nowhere/training.csv")]).fit(X, y)
LipschitzRegressor(checkpoint="there", checkpoint_interval=-1).fit(X, y)
LipschitzRegressor(checkpoint="there", checkpoint_interval="60").fit(X, y)
LipschitzRegressor(checkpoint="notes.txt").fit(X, y)
LipschitzRegressor(checkpoint=True).fit(X, y)
Checkpoint("notes.txt")
LipschitzRegressor(**short, checkpoint="begun", resume=True).fit(X + 1, y)
LipschitzRegressor(checkpoint="begun", resume=True).fit(X, y)
LipschitzRegressor(**short, checkpoint="damaged", resume=True).fit(X, y)
LipschitzRegressor(**short, checkpoint="of a model", resume=True).fit(X, y)
LipschitzRegressor(**short, checkpoint="of other layers", resume=True).fit(X, y)
LipschitzRegressor(3, checkpoint="damaged selection", resume=True).fit(X, y)
LipschitzRegressor(3, checkpoint="model for selection", resume=True).fit(X, y)
Batches(iter([(X[:5], y[:5])])).seek(place)
changed(model, warm_start=True, hidden_layer_sizes=(4,)).fit(X, y)
""",
    "Fitted models": """
LipschitzRegressor().predict(X)
LipschitzRegressor().jacobian(X)
LipschitzRegressor().certificate_
LipschitzRegressor().n_iter_
LipschitzRegressor().save("model.safetensors")
LipschitzClassifier().predict_proba(X)
model.predict(X.T)
model.predict(X[0])
model.predict(hole)
model.predict("flight.csv")
model.score(X, y[:5])
model.predict_proba(X)
model.model_.predict_proba(X)
model.model_.predict(X.T)
changed(model, model_=replace(model.model_, training=None)).history_
model.partial_fit(X, X)
classifier.partial_fit(X, 6 * ["low", "lower"])
""",
    "Model files": """
load("missing.safetensors")
load("folder")
load("flight.csv")
load(model)
load("empty.safetensors")
load("short.safetensors")
load("text.safetensors")
load("list.safetensors")
load("no JSON.safetensors")
load("of another library.safetensors")
load("numbers as text.safetensors")
load("altered.safetensors")
load("newer.safetensors")
load("newer, unknown.safetensors")
load("begun/checkpoint.safetensors")
load("uncertified.safetensors")
model.save("model.pkl")
model.save("")
model.save("folder/none/model.safetensors")
model.save("folder.safetensors")
model.save(5)
storage.save("model.safetensors", model)
storage.save(LipschitzRegressor(), "model.safetensors")
storage.save(make_pipeline(StandardScaler(), model), "model.safetensors")
Own(**short).fit(X, y).save("model.safetensors")
changed(model, loss=Cube()).save("model.safetensors")
changed(model, method=("auto", object())).save("model.safetensors")
changed(model, verbose=object()).save("model.safetensors")
storage.save(replace(model.model_, activation=tanh.activation), "model.safetensors")
storage.save(replace(classifier.model_, classes=np.array([1j, 2j])), "model.safetensors")
""",
    "Model files that were tampered with": """
load("tampered/estimator.safetensors")
load("tampered/no-estimator.safetensors")
load("tampered/parameters.safetensors")
load("tampered/no-parameters.safetensors")
load("tampered/unknown-parameter.safetensors")
load("tampered/odd-parameter.safetensors")
load("tampered/odd-object.safetensors")
load("tampered/odd-number.safetensors")
load("tampered/odd-type.safetensors")
load("tampered/constant.safetensors")
load("tampered/activation.safetensors")
load("tampered/no-network.safetensors")
load("tampered/sizes.safetensors")
load("tampered/one-size.safetensors")
load("tampered/no-weights.safetensors")
load("tampered/shape.safetensors")
load("tampered/infinite.safetensors")
load("tampered/radii.safetensors")
load("tampered/scaling.safetensors")
load("tampered/spread.safetensors")
load("tampered/shift.safetensors")
load("tampered/range.safetensors")
load("tampered/half-range.safetensors")
load("tampered/n_features.safetensors")
load("tampered/names.safetensors")
load("tampered/target_names.safetensors")
load("tampered/two-target-names.safetensors")
load("tampered/budget.safetensors")
load("tampered/networks.safetensors")
load("tampered/candidates.safetensors")
load("tampered/candidate.safetensors")
load("tampered/candidate-layers.safetensors")
load("tampered/candidate-loss.safetensors")
load("tampered/n_iter.safetensors")
load("tampered/loss.safetensors")
load("tampered/single.safetensors")
load("tampered/units.safetensors")
load("tampered/classes.safetensors")
load("tampered/labels.safetensors")
load("tampered/fractions.safetensors")
load("tampered/width.safetensors")
load("tampered/no-labels.safetensors")
load("tampered/more.safetensors")
load("tampered/certificate.safetensors")
load("tampered/tiny.safetensors")
load("tampered/type.safetensors")
load("tampered/places.safetensors")
""",
    "Networks, problems and descend": """
Network(3)
Network((3,))
Network((3, 2.5, 1))
Network(("3", "x"))
Network((3, 3, 1), "swish")
network.initial_weights(scheme="xavier")
network.initial_weights(radius=(1, 2, 3))
network.initial_weights(radius=-1)
network.initial_weights(radius="one")
network.initial_weights(dtype="float16")
network.predict(weights, X.T)
network.predict(weights[:1], X)
network.predict(weights[::-1], X)
Problem(X, y, network)
Problem(network, X, y)
Problem(network, X.T, y[:, None])
Problem(network, X[:5], y[:, None])
Problem(network, X[:0], y[:0, None])
Problem(network, hole, y[:, None])
Problem(network, X, labels)
Problem(network, X, y[:, None], loss="mse")
Problem(network, X, y[:, None], loss="logistic")
Problem(network, X, y[:, None], dtype=int)
Problem(network, X, y[:, None], sample_weight=[1, 2])
shard(network)
shard(shard(problem))
shard(problem.window(0, 1))
shard(problem, weight=0)
descend(problem)
descend(weights, problem)
descend(network, weights)
descend(problem, [])
descend(problem, weights[0])
descend(problem, [np.zeros((3, 3)), np.ones((3, 1))])
descend(Mine(), [])
descend(Mine(), [np.full((2, 2), np.nan)])
descend(Mine(), ["weights"])
descend(Mine(), [np.ones(3)])
descend(Mine(jnp.square), weights)
descend(Mine(np.array), weights)
descend(problem, weights, direction="steepest")
descend(problem, weights, direction=directions.Steepest)
descend(problem, weights, direction=steps.Curvature(), step=directions.Steepest())
descend(problem, weights, step="curvature")
descend(problem, weights, stop=200)
descend(Mine(), weights, direction=directions.GaussNewton())
descend(Mine(), weights, direction=directions.Kronecker())
descend(Mine(), weights, direction=directions.KroneckerMomentum())
descend(Mine(), weights, direction=directions.MajorantSteepest())
descend(Mine(), weights, step=steps.Majorant())
descend(Gradient(), weights)
descend(problem, weights, step=steps.SmoothMajorant())
directions.ConjugateGradient(beta="fletcher-reeves")
directions.GaussNewton(residual=2)
directions.GaussNewton(max_products=0)
directions.GaussNewton(fraction=0)
directions.GaussNewton(fraction="half")
directions.Kronecker(sample=0)
steps.Curvature(max_angle=-1)
steps.Curvature(max_angle="30°")
steps.Taylor(0)
steps.Taylor(2.5)
steps.Majorant("bisection")
steps.LinearDecay(0)
steps.LinearDecay(100, 0.0)
stopping.MaxIter(-1)
stopping.MaxIter("200")
stopping.DecreaseBelow(1e-3, patience=0)
stopping.DecreaseBelow("1e-3")
stopping.MaxIter(200) | 1e-3
declare(jnp.tanh, (0, 2))
declare(jnp.tanh, 1)
declare(jnp.tanh, ("low", "high"))
declare(np.sin(1), (0, 1))
declare(lambda x: 1 / x, (-1, 1))
declare(lambda x: jnp.cos(x), (-1, 1))
declare(lambda x: x * jnp.tanh(x), (-1, 1))
declare(jnp.sin, (0, 1))
declare(lambda x: jnp.sum(x), (0, 1))
declare(lambda z, xp: xp.tanh(z), (0, 1), derivative=lambda z, a, xp: xp.exp(-((z - 1) ** 2)))
declare(lambda z, xp: xp.tanh(z), (0, 1), derivative=lambda z, a, xp: xp.lax.tanh(z))
Scaling.fit("minmax", X, X)
initialisation.initialise(network, X, y[:, None], 0, target_gain=-1)
initialisation.initialise(network, X, y[:, None], 0, target_scale="unit")
descend(problem, weights, rows=GrowingBatches(Batches([(X, y)]), None, 13, 13))
descend(problem, weights, rows=RandomBatches(problem))
descend(problem, weights, step=steps.Curvature(), rows=RandomBatches(problem))
certificate.spectral(weights[0])
certificate.spectral([])
certificate.spectral([np.full((2, 2), np.nan)])
certificate.spectral([np.ones(3)])
certificate.spectral(weights[::-1])
certificate.spectral(5)
certificate.tight(weights, biases=[np.ones(2)])
certificate.tight(weights, activation="gelu")
certificate.tight(weights, min_input_norm=2)
certificate.tight(weights, inputs="z")
certificate.tight(weights, inputs=[])
certificate.tight(weights, inputs=[3])
certificate.tight(model, inputs=["z"])
certificate.tight(model, activation="tanh")
certificate.tight(model, min_input_norm=2)
certificate.tight(replace(model.model_, scaling=paper), min_input_norm=-1)
certificate.tight([np.diag([1e200, 1e-200]), 1e-200 * np.eye(2)])
certificate.tight([np.ones((2, 2)), np.triu(np.ones((2, 2)))])
certificate.tight(weights, orientation="columns")
certificate.tight(model, inputs=[True, False, False])
certificate.verify(None, model)
certificate.lower(weights, starts=0)
certificate.lower(weights, X=X.T)
certificate.lower(weights, X="flight.csv")
certificate.local(weights, [0, 0, 0], [1, 1])
certificate.local(weights, [0, 0, 0], [1, -1, 1])
certificate.local(weights, [0, 0, np.nan], [1, 1, 1])
certificate.local(weights, -1, 1)
certificate.local(weights, "low", "high")
certificate.local(model, {"z": 0}, {"z": 1})
certificate.local(replace(model.model_, scaling=paper), [0, 0, 0], [1, 1, 1])
greatcircle.LipschitzRegresor
""",
    "Export": """
model.export("model")
model.export("model.py")
model.export("model.cpp", to="c")
model.export("model.c", to="rust")
model.export(5)
model.export("folder/none/model.c")
model.export("folder.c")
model.export("model.c", dtype="float16")
model.export("model.c", name="2 nets")
model.export("model.py", to="torch", name="super")
model.export("model.casadi", name="sin")
model.export("a\\0b.c")
model.export("ü.c")
model.export("torch.py", to="torch")
greatcircle.export.export(replace(model.model_, feature_names=("a\\0b", "b", "c")), "model.c")
model.export("model.c", units=["m"])
model.export("model.c", units={"z": "m"})
model.export("model.casadi", dtype="float32")
greatcircle.export.export(replace(model.model_, activation=tanh.activation), "model.c")
greatcircle.export.export(activated(model, lambda z, xp: xp.log(z)), "model.c")
greatcircle.export.export(activated(model, lambda z, xp: xp.tanh(z, z)), "model.c")
greatcircle.export.export(activated(model, lambda z, xp: z**0.5), "model.c")
greatcircle.export.export(activated(model, lambda z, xp: z * np.inf), "model.c")
greatcircle.export.export(activated(model, lambda z, xp: z if z > 0 else 0), "model.c")
greatcircle.export.export(activated(model, lambda z, xp: xp.where(z == 0, z, 0)), "model.c")
greatcircle.export.export(activated(model, lambda z, xp: xp.where(z != 0, z, 0)), "model.c")
greatcircle.export.export(activated(model, lambda z, xp: z < 0), "model.c")
greatcircle.export.export(activated(model, lambda z, xp: (z < 0) * z), "model.c")
greatcircle.export.export(replace(model.model_, activation=steep), "model.c", dtype="float32")
greatcircle.export.export(replace(model.model_, scaling=small), "model.c", dtype="float32")
greatcircle.export.export(replace(model.model_, scaling=tiny), "model.c", dtype="float32")
certified_as(model, 0.01).export("model.c")
LipschitzRegressor().export("model.c")
greatcircle.export.export(make_pipeline(StandardScaler(), model), "model.c")
""",
    "Tables": """
files.read("missing.csv", targets="fz")
files.read("semicolons.csv", targets="fz")
files.read("commas.csv", targets="fz")
files.read("twice.csv", targets="fz")
files.read("numbers.csv", targets="fz")
files.read("carriage.csv", targets="fz")
files.read("latin.csv", targets="fz")
files.read("utf16.csv", targets="fz")
files.read("flight.csv", targets=["fz", "fx"])
files.read("flight.csv", targets="fz", inputs=["z", "fz"])
files.read("flight.csv", targets="weather")
files.read("flight.csv", targets=["weather", "one"], classify=True)
files.read_inputs("flight.csv", None, 3)
files.read_inputs("flight.csv", ["z", "V"], 2)
Table({"z": y}, ("z",), ())
Table({"z": y}, ("z",), ("fz",))
Table({"z": y, "fz": y[:5]}, ("z",), ("fz",))
Table({"z": y, "class": labels}, ("z",), ("class",)).y
Table({"z": y, "v": y, "fz": y}, ("z",), ("v", "fz")).labels
Batches([(hole, y)]).draw(9)
split(10, kind="blocks")
split(10, fraction=2)
split(1)
ground_effect.generate(0)
ground_effect.generate(10, noise_variance=-1)
neural_fly.load()
neural_fly.load("folder")
neural_fly.load("flight.csv")
neural_fly.load("flight.csv", conditions=[])
neural_fly.load("flights", conditions="hurricane")
neural_fly.load("flights")
neural_fly.load("flights", conditions="35wind")
neural_lander.load("flight.csv")
neural_lander.build("flight.csv", "flight.csv", "flight.csv")
neural_lander.build("flight.csv", "flight.csv", "flight.csv", start=9, stop=3)
""",
    "greatcircle": """
$ greatcircle
$ greatcircle train
$ greatcircle --seed 1
$ greatcircle demo --seed x
$ greatcircle demo --seed -1
$ greatcircle demo --out notes.txt
""",
    "greatcircle fit": """
$ greatcircle fit
$ greatcircle fit flight.csv
$ greatcircle fit flight.csv --targets
$ greatcircle fit flight.csv --targets fz --method adam
$ greatcircle fit flight.csv --targets fz --hidden 3,3
$ greatcircle fit flight.csv --targets fz --epochs 5
$ greatcircle fit missing.csv --targets fz
$ greatcircle fit folder --targets fz
$ greatcircle fit flight.xlsx --targets fz
$ greatcircle fit broken.parquet --targets fz
$ greatcircle fit empty.csv --targets fz
$ greatcircle fit header.csv --targets fz
$ greatcircle fit row.csv --targets fz
$ greatcircle fit words.csv --targets fz
$ greatcircle fit latin.csv --targets fz
$ greatcircle fit flight.csv --targets force
$ greatcircle fit flight.csv --targets FZ
$ greatcircle fit flight.csv --targets fz,z
$ greatcircle fit flight.csv --targets fz --inputs z vq
$ greatcircle fit flight.csv --targets fz --inputs z fz
$ greatcircle fit flight.csv --targets weather
$ greatcircle fit flight.csv --targets fz --inputs weather
$ greatcircle fit hole.csv --targets fz
$ greatcircle fit switch.parquet --targets on
$ greatcircle fit flight.csv --targets one --classify
$ greatcircle fit flight.csv --targets fz --classify
$ greatcircle fit flight.csv --targets fz one --classify
$ greatcircle fit flight.csv --targets weather --classify --loss huber
$ greatcircle fit label.csv --targets weather --classify
$ greatcircle fit lists.parquet --targets list --classify
$ greatcircle fit lists.parquet --targets nul --classify
$ greatcircle fit huge.csv --targets fz
$ greatcircle fit flight.csv --targets fz --out flight.csv
$ greatcircle fit flight.csv --targets fz --out occupied
$ greatcircle fit flight.csv --targets fz --test-fraction 1.5
$ greatcircle fit flight.csv --targets fz --lipschitz -2
$ greatcircle fit flight.csv --targets fz --lipschitz 2 --method ad
$ greatcircle fit flight.csv --targets fz --saturation box
$ greatcircle fit flight.csv --targets fz --saturation both --method mm
$ greatcircle fit flight.csv --targets weather --classify --saturation outputs
$ greatcircle fit flight.csv --targets fz --hidden 4 0
$ greatcircle fit flight.csv --targets fz --hidden 4 wide
$ greatcircle fit flight.csv --targets fz --hidden 4 auto
$ greatcircle fit flight.csv --targets fz --ensemble 0
$ greatcircle fit flight.csv --targets fz --target-gain 0
$ greatcircle fit flight.csv --targets fz --target-gain large
$ greatcircle fit flight.csv --targets fz --cv 1
$ greatcircle fit flight.csv --targets fz --cv five
$ greatcircle fit flight.csv --targets fz --cv 5 --no-selection
$ greatcircle fit flight.csv --targets fz --cv time --method mm
$ greatcircle fit flight.csv --targets fz --cv 5 --early-stopping
$ greatcircle fit flight.csv --targets fz --max-iter 0
$ greatcircle fit flight.csv --targets fz --seed -1
$ greatcircle fit flight.csv --targets fz --seed 99999999999999
$ greatcircle fit index.csv --targets fz --hidden 3 --max-iter 1 --no-selection --quiet
$ greatcircle fit late.csv --targets kind --classify --split time --hidden 3 --no-selection --quiet
""",
    "greatcircle predict": """
$ greatcircle predict
$ greatcircle predict flight.csv
$ greatcircle predict missing.safetensors flight.csv
$ greatcircle predict flight.csv model.safetensors
$ greatcircle predict short.safetensors flight.csv
$ greatcircle predict model.safetensors missing.csv
$ greatcircle predict model.safetensors flight.csv
$ greatcircle predict model.safetensors flight.csv --out predictions.xlsx
$ greatcircle predict model.safetensors flight.csv --out notes.txt/predictions.csv
$ greatcircle predict runs/late/model.safetensors words.csv
""",
    "greatcircle certify": """
$ greatcircle certify
$ greatcircle certify missing.safetensors
$ greatcircle certify flight.csv
$ greatcircle certify model.safetensors --groups 0,1
$ greatcircle certify model.safetensors --groups u=7
$ greatcircle certify model.safetensors --groups u=²
$ greatcircle certify model.safetensors --groups u=0 u=1
$ greatcircle certify model.safetensors --groups u=u1
$ greatcircle certify model.safetensors --groups u=0,1 --gain u=much
$ greatcircle certify model.safetensors --gain u=0.1
$ greatcircle certify model.safetensors --min-input-norm 2
""",
    "Control": """
control.contraction(gain=0.0, bound=2.0)
control.contraction(gain=0.1, bound=-1.0)
control.contraction(gain=1.0, bound=2.0).iterations(1.0, 1e-3)
control.contraction(gain=0.1, bound=2.0).iterations(1.0, 0.0)
control.ultimate_bound(bound=1.0, model_error=-1.0, damping=1.0, stiffness=1.0, mass=1.0)
control.ultimate_bound(bound=9.0, model_error=1.0, damping=1.0, stiffness=1.0, mass=1.0, change=1.0)
""",
    "greatcircle export": """
$ greatcircle export
$ greatcircle export model.safetensors
$ greatcircle export model.safetensors --to rust
$ greatcircle export missing.safetensors --to c
$ greatcircle export flight.csv --to c
$ greatcircle export model.safetensors --out model.py
$ greatcircle export model.safetensors --to c --units z
$ greatcircle export model.safetensors --to c --units z=m
$ greatcircle export model.safetensors --to c --out notes.txt/model.c
""",
    "greatcircle reproduce": """
$ greatcircle reproduce
$ greatcircle reproduce exp3
$ greatcircle reproduce exp1 --seeds 0
$ greatcircle reproduce exp1 --jobs 0
$ greatcircle reproduce exp1 --methods adam
$ greatcircle reproduce exp1 --out notes.txt
$ greatcircle reproduce exp1 --data flight.csv
$ greatcircle reproduce exp1 --data missing.csv --targets fz
$ greatcircle reproduce exp1 --data neural-fly
$ greatcircle reproduce exp1 --data neural-fly --path folder
""",
}
